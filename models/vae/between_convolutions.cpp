// Adds residuals and changes picture sizes, with our CUDA kernels if they accept the tensors.
#include "models/vae/between_convolutions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "models/vae/causal_conv3d.h"
#include "models/vae/row_split.h"
#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

// Repeats every pixel of x [F, H, W, C] 2 x 2 times. Returns [F, C, 2 H, 2 W], channels-last.
at::Tensor repeat_pixels(const at::Tensor& x) {
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x)) return repeat_on_cuda(x, {}, 2, false).permute({0, 3, 1, 2});
#endif
  return at::upsample_nearest2d(x.permute({0, 3, 1, 2}), {2 * x.size(1), 2 * x.size(2)});
}

// Applies a convolution of pictures to frames [F, H, W, C], as many frames per call as cuDNN can index. `elements` is
// the number of input elements of a frame.
at::Tensor by_frames(const at::Tensor& x, int64_t elements, const auto& convolved) {
  const int64_t frames = x.size(0), per_call = std::max<int64_t>(1, kMaxElementsPerCall / elements);
  std::vector<at::Tensor> parts;
  for (int64_t start = 0; start < frames; start += per_call) {
    const at::Tensor part = convolved(x.narrow(0, start, std::min(per_call, frames - start)));
    parts.push_back(part.permute({0, 2, 3, 1}).contiguous());
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

}  // namespace

bool carries_biases([[maybe_unused]] const at::Tensor& x) {
#ifdef SPARSEREEL_CUDA
  return has_vae_kernels(x);
#else
  return false;
#endif
}

void add_residual(at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias) {
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x) && has_vae_kernels(residual)) return add_residual_on_cuda(x, residual, bias);
#endif
  x.add_(residual);
  if (bias.defined()) x.add_(bias);
}

at::Tensor upsample_pixels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const RowSplit* rows) {
  if (rows == nullptr)
    return by_frames(x, 4 * x[0].numel(), [&](const at::Tensor& frames) {
      return convolve(repeat_pixels(frames), weight, bias, /*padding=*/{1, 1});
    });
  // A row of the neighboring band becomes two rows, of which only the inner one belongs to this convolution's input. So
  // the result has one row too many at either end, which is dropped.
  const at::Tensor given = rows->surrounded(x, RowSplit::Outside::zeros);
  return by_frames(given, 4 * given[0].numel(), [&](const at::Tensor& frames) {
    return convolve(repeat_pixels(frames), weight, bias, /*padding=*/{0, 1}).narrow(2, 1, 2 * x.size(1));
  });
}

at::Tensor downsample_pixels(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return by_frames(x, x[0].numel(), [&](const at::Tensor& frames) {
    const at::Tensor padded = at::constant_pad_nd(frames, {0, 0, 0, 1, 0, 1}).permute({0, 3, 1, 2});
    return convolve(padded, weight, bias, /*padding=*/{0, 0}, /*stride=*/{2, 2});
  });
}

}  // namespace sparsereel::models
