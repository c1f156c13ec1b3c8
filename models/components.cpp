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

uint64_t weight_bytes(const ModelFolder& folder, const std::string& role, WeightFormat format) {
  Component described;
  described.class_name = folder.component_class(role);
  described.random_seed = 0;  // asks for no files
  described.config = folder.config(role, &described.config_file);
  if (component_loaders().transformers.contains(described.class_name))
    return load_dit(described, at::kMeta, format)->weight_bytes();
  return load_text_encoder(described, at::kMeta, format)->weight_bytes();
}

std::unique_ptr<VaeDecoder> load_vae(const Component& component, at::Device device, at::ScalarType dtype) {
  return component_loaders().vaes.at(component.class_name)(component, device, dtype);
}

}  // namespace sparsereel::models
