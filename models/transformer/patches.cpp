// Permutes axes to make patches, then gathers tokens in the plan's order.
#include "models/transformer/patches.h"

#include <ATen/ATen.h>

#include "attention/token_gather.h"

namespace sparsereel::models {

at::Tensor patchify(const at::Tensor& latents, const PatchSize& patch, const TokenPlan& plan) {
  const hilbert::Grid& grid = plan.grid;
  const at::Tensor patches = latents
                                 .reshape({latents.size(0), grid.frames, patch.frames, latents.size(2), grid.height,
                                           patch.height, grid.width, patch.width})
                                 .permute({0, 1, 4, 6, 3, 2, 5, 7})
                                 .flatten(4, 7)
                                 .flatten(1, 3);
  return plan.order.defined() ? attention::gather_tokens(patches, plan.order)
                              : patches.narrow(1, plan.slice.first, plan.slice.count);
}

at::Tensor unpatchify(const at::Tensor& patches, const PatchSize& patch, const TokenPlan& plan) {
  const hilbert::Grid& grid = plan.grid;
  const at::Tensor all = gather_slices(patches, 1, grid.size(), plan.group);
  const at::Tensor native = plan.inverse.defined() ? attention::gather_tokens(all, plan.inverse) : all;
  const int64_t channels = patches.size(2) / (patch.frames * patch.height * patch.width);
  return native
      .view({native.size(0), grid.frames, grid.height, grid.width, channels, patch.frames, patch.height, patch.width})
      .permute({0, 1, 5, 4, 2, 6, 3, 7})
      .flatten(6, 7)
      .flatten(4, 5)
      .flatten(1, 2)
      .contiguous();
}

at::Tensor unpatchify_channels_last(const at::Tensor& patches, int64_t all, int64_t channels, const PatchSize& patch,
                                    const TokenPlan& plan) {
  const at::Tensor channels_first = patches.unflatten(2, {-1, all}).narrow(3, 0, channels).transpose(2, 3).flatten(2);
  return unpatchify(channels_first, patch, plan).transpose(1, 2).contiguous();
}

at::Tensor known_tokens(const at::Tensor& mask, const PatchSize& patch, const TokenPlan& plan) {
  const hilbert::Grid& grid = plan.grid;
  const at::Tensor latents =
      mask.expand({1, grid.frames * patch.frames, 1, grid.height * patch.height, grid.width * patch.width});
  return patchify(latents, patch, plan)[0].eq(0).any(1).to(at::kLong);
}

}  // namespace sparsereel::models
