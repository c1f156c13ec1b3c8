// Classes of components -> what loads them; every class of a row of family.cpp is here.
#include "models/components.h"

#include <map>
#include <string>

#include "models/dit/cogvideox.h"
#include "models/dit/wan.h"
#include "models/vae/cogvideox_vae.h"
#include "models/vae/wan_vae.h"

namespace sparsereel::models {

std::unique_ptr<Denoiser> load_dit(const Component& component, at::Device device, at::ScalarType dtype, bool offload) {
  static const std::map<std::string, decltype(&load_dit)> loaders = {
      {"CogVideoXTransformer3DModel", load_cogvideox_dit},
      {"WanTransformer3DModel", load_wan_dit},
  };
  return loaders.at(component.class_name)(component, device, dtype, offload);
}

std::unique_ptr<VaeDecoder> load_vae(const Component& component, at::Device device, at::ScalarType dtype) {
  static const std::map<std::string, decltype(&load_vae)> loaders = {
      {"AutoencoderKLCogVideoX", load_cogvideox_vae},
      {"AutoencoderKLWan", load_wan_vae},
  };
  return loaders.at(component.class_name)(component, device, dtype);
}

}  // namespace sparsereel::models
