// Chooses memory formats of weights, and scales latents.
#include "models/vae/coder_vae.h"

#include <ATen/ATen.h>

#include <utility>

namespace sparsereel::models {

Visit loads_of_coder(WeightReader& reader) {
  return [&reader](at::Tensor& tensor, const Parameter& parameter) {
    tensor = reader.read(parameter);
    if (tensor.dim() == 5) tensor = laid_out(tensor, at::MemoryFormat::ChannelsLast3d);
    if (tensor.dim() == 4) tensor = laid_out(tensor, at::MemoryFormat::ChannelsLast);
  };
}

Visit counted(Visit load, VaeWeights& weights) {
  return [load = std::move(load), &weights](at::Tensor& tensor, const Parameter& parameter) {
    load(tensor, parameter);
    weights.count += static_cast<uint64_t>(tensor.numel());
    weights.bytes += tensor.nbytes();
  };
}

at::Tensor channel_values(const std::vector<double>& values, const at::Tensor& latents) {
  return at::tensor(values, at::kFloat).to(latents.device()).view({1, -1, 1, 1, 1});
}

at::Tensor denormalized(const at::Tensor& latents, const std::vector<double>& mean,
                        const std::vector<double>& deviation, double factor) {
  return at::addcmul(channel_values(mean, latents), latents.to(at::kFloat), channel_values(deviation, latents), factor)
      .to(latents.scalar_type());
}

}  // namespace sparsereel::models
