// Our own code computes fp32 on a CPU and all dtypes on a GPU, in one pass over memory. The RMS norm of layers/norm.h
// and torch's SiLU compute the rest.
#include "models/vae/rms_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "models/layers/norm.h"
#include "models/vae/norm_kernels.h"
#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

constexpr int64_t kValuesPerTask = int64_t{1} << 18;  // fewer values are not worth a thread

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gamma) {
  // The epsilon is so small that it only keeps a pixel of zeros from becoming NaN.
  const double eps = kLeastNorm * kLeastNorm / static_cast<double>(x.size(-1));
  return rms_norm(x, gamma.to(at::kFloat), eps).to(x.scalar_type());
}

void rms_norm_silu(const at::Tensor& x, const at::Tensor& gamma, at::Tensor out, const at::Tensor& input_bias) {
  if (!out.is_contiguous()) {
    for (int64_t t = 0; t < x.size(0); ++t) rms_norm_silu(x.narrow(0, t, 1), gamma, out.narrow(0, t, 1), input_bias);
    return;
  }
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x)) return rms_norm_silu_on_cuda(x, input_bias, gamma, out);
#endif
  if (input_bias.defined()) return rms_norm_silu(x + input_bias, gamma, out);
  if (!x.is_cpu() || x.scalar_type() != at::kFloat) {
    at::silu_out(out, rms_norm(x, gamma));
    return;
  }
  const int64_t channels = x.size(-1), pixels = x.numel() / channels;
  const at::Tensor scale = gamma * std::sqrt(static_cast<double>(channels));
  const float *source = x.const_data_ptr<float>(), *factors = scale.const_data_ptr<float>();
  auto* destination = out.mutable_data_ptr<float>();
  at::parallel_for(0, pixels, std::max<int64_t>(1, kValuesPerTask / channels), [&](int64_t start, int64_t end) {
    normalize_silu({.x = source + start * channels,
                    .out = destination + start * channels,
                    .scale = factors,
                    .pixels = end - start,
                    .channels = channels});
  });
}

}  // namespace sparsereel::models
