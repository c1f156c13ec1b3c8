// Looks loaders up by class.
#include "models/components.h"

namespace sparsereel::models {

std::unique_ptr<TextEncoder> load_text_encoder(const Component& component, at::Device device, WeightFormat format,
                                               Residence residence) {
  return component_loaders().text_encoders.at(component.class_name)(component, device, format, residence);
}

std::unique_ptr<Denoiser> load_dit(const Component& component, at::Device device, WeightFormat format, bool offload) {
  return component_loaders().transformers.at(component.class_name)(component, device, format, offload);
}

std::unique_ptr<VaeDecoder> load_vae(const Component& component, at::Device device, at::ScalarType dtype) {
  return component_loaders().vaes.at(component.class_name)(component, device, dtype);
}

}  // namespace sparsereel::models
