// Loads denoisers and decoders by the class that model_index.json names.
#pragma once

#include <memory>

#include "models/dit/denoiser.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// offload: the blocks stay in page-locked host memory, two of them are on the GPU at a time.
std::unique_ptr<Denoiser> load_dit(const Component& component, at::Device device, at::ScalarType dtype,
                                   bool offload = false);

std::unique_ptr<VaeDecoder> load_vae(const Component& component, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::models
