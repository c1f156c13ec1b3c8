// Converts tensors to pointers and sizes for the elementwise kernels of vae/cuda.
#include "models/vae/cuda_call.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "attention/cuda_binding.h"
#include "models/layers/cuda_scalar.h"
#include "models/vae/cuda/launch.h"
#include "models/vae/norm_kernels.h"

namespace sparsereel::models {

using attention::check_launch;
using attention::current_stream;
using attention::is_half_on_cuda;
using attention::kVector;
using attention::on_16_bytes;

namespace {

const void* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Measures x [frames, .., channels] + input_bias. Fills one of two results; the other must be undefined. affine, fp32
// [2, frames, channels], receives scales, then shifts. moments, fp64 [2, frames, groups], receives means, then
// variances.
void measure_groups(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& input_bias, const at::Tensor& affine,
                    const at::Tensor& moments) {
  const int64_t frames = x.size(0), channels = x.size(-1);
  const at::Tensor partials = at::empty({frames, cuda::kStatisticsBlocks, 2, channels}, x.options().dtype(at::kFloat));
  float* scale = affine.defined() ? affine.mutable_data_ptr<float>() : nullptr;
  const cuda::GroupStatistics statistics = {.x = x.const_data_ptr(),
                                            .input_bias = data_or_null(input_bias),
                                            .weight = norm.norm.weight.const_data_ptr(),
                                            .bias = norm.norm.bias.const_data_ptr(),
                                            .partials = partials.mutable_data_ptr<float>(),
                                            .scale = scale,
                                            .shift = scale == nullptr ? nullptr : scale + frames * channels,
                                            .moments = moments.defined() ? moments.mutable_data_ptr<double>() : nullptr,
                                            .frames = static_cast<int>(frames),
                                            .pixels = x.numel() / (frames * channels),
                                            .channels = static_cast<int>(channels),
                                            .groups = static_cast<int>(norm.groups),
                                            .eps = static_cast<float>(norm.eps),
                                            .element = scalar_of(x)};
  check_launch(cuda::group_statistics(statistics, current_stream(x.device())), "group statistics");
}

// Returns the group norm of x [frames, .., channels] + input_bias as fp32 [2, frames, channels]: scales, then shifts.
at::Tensor group_affine_on_cuda(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& input_bias,
                                const RowSplit* rows) {
  const int64_t frames = x.size(0), channels = x.size(-1);
  if (rows == nullptr) {
    at::Tensor affine = at::empty({2, frames, channels}, x.options().dtype(at::kFloat));
    measure_groups(norm, x, input_bias, affine, {});
    return affine;
  }
  const at::Tensor moments = at::empty({2, frames, norm.groups}, x.options().dtype(at::kDouble));
  measure_groups(norm, x, input_bias, {}, moments);
  ChannelAffine affine = to_channel_affine(norm, rows->joined_moments(moments));
  if (input_bias.defined()) affine.shift.addcmul_(affine.scale, input_bias.to(at::kFloat));
  return at::stack({affine.scale, affine.shift});
}

// Runs ScaleSilu. affine is fp32 [2, frames, channels]: scales, then shifts.
void scale_on_cuda(const at::Tensor& x, const at::Tensor& affine, const at::Tensor& out) {
  const int64_t frames = x.size(0), channels = x.size(3);
  const cuda::ScaleSilu call = {.x = x.const_data_ptr(),
                                .out = out.mutable_data_ptr(),
                                .scale = affine.const_data_ptr<float>(),
                                .shift = affine.const_data_ptr<float>() + frames * channels,
                                .frames = static_cast<int>(frames),
                                .height = static_cast<int>(x.size(1)),
                                .width = static_cast<int>(x.size(2)),
                                .channels = static_cast<int>(channels),
                                .out_frame = out.stride(0),
                                .out_row = out.stride(1),
                                .element = scalar_of(x)};
  check_launch(cuda::scale_silu(call, current_stream(x.device())), "group norm");
}

// Runs ModulateSilu. affine is fp32 [2, 1, channels]: a scale and a shift for all frames. All tensors must be
// contiguous.
void modulate_on_cuda(const at::Tensor& x, const at::Tensor& affine, const at::Tensor& y, const at::Tensor& b,
                      const at::Tensor& out) {
  const int64_t channels = x.size(3);
  const cuda::ModulateSilu modulate = {.x = x.const_data_ptr(),
                                       .out = out.mutable_data_ptr(),
                                       .scale = affine.const_data_ptr<float>(),
                                       .shift = affine.const_data_ptr<float>() + channels,
                                       .y = y.const_data_ptr(),
                                       .b = b.const_data_ptr(),
                                       .frames = static_cast<int>(x.size(0)),
                                       .height = static_cast<int>(x.size(1)),
                                       .width = static_cast<int>(x.size(2)),
                                       .channels = static_cast<int>(channels),
                                       .latent_frames = static_cast<int>(y.size(0)),
                                       .latent_height = static_cast<int>(y.size(1)),
                                       .latent_width = static_cast<int>(y.size(2)),
                                       .element = scalar_of(x)};
  check_launch(cuda::modulate_silu(modulate, current_stream(x.device())), "group norm");
}

}  // namespace

bool has_vae_kernels(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kFloat || is_half_on_cuda(x)) && x.is_contiguous() && on_16_bytes(x) &&
         x.numel() > 0 && x.size(3) % kVector == 0 && x.size(3) <= cuda::kMaxStatisticsChannels;
}

void spatial_norm_silu_on_cuda(const SpatialNorm& norm, double eps, const at::Tensor& x, const at::Tensor& input_bias,
                               const at::Tensor& y, const at::Tensor& b, const at::Tensor& out, const RowSplit* rows) {
  const c10::DeviceGuard guard(x.device());
  const at::Tensor affine =
      group_affine_on_cuda({norm.norm, norm.groups, eps}, x.view({1, -1, x.size(3)}), input_bias, rows);
  if (out.is_contiguous()) return modulate_on_cuda(x, affine, y, b, out);
  for (int64_t t = 0; t < x.size(0); ++t) {
    const int64_t latent = latent_frame_of(t, x.size(0), y.size(0));
    modulate_on_cuda(x.narrow(0, t, 1), affine, y.narrow(0, latent, 1), b.narrow(0, latent, 1), out.narrow(0, t, 1));
  }
}

void group_norm_silu_on_cuda(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& input_bias,
                             const at::Tensor& out, const RowSplit* rows) {
  const c10::DeviceGuard guard(x.device());
  scale_on_cuda(x, group_affine_on_cuda(norm, x, input_bias, rows), out);
}

void video_norm_silu_on_cuda(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& input_bias,
                             const at::Tensor& out, const RowSplit& rows) {
  const c10::DeviceGuard guard(x.device());
  const at::Tensor affine = group_affine_on_cuda(norm, x.view({1, -1, x.size(3)}), input_bias, &rows);
  scale_on_cuda(x, affine.expand({2, x.size(0), x.size(3)}).contiguous(), out);
}

void rms_norm_silu_on_cuda(const at::Tensor& x, const at::Tensor& input_bias, const at::Tensor& gamma,
                           const at::Tensor& out) {
  const c10::DeviceGuard guard(x.device());
  const cuda::RmsNormSilu call = {.x = x.const_data_ptr(),
                                  .input_bias = data_or_null(input_bias),
                                  .gamma = gamma.const_data_ptr(),
                                  .out = out.mutable_data_ptr(),
                                  .pixels = x.numel() / x.size(3),
                                  .channels = static_cast<int>(x.size(3)),
                                  .least_norm = static_cast<float>(kLeastNorm),
                                  .element = scalar_of(x)};
  check_launch(cuda::rms_norm_silu(call, current_stream(x.device())), "RMS norm");
}

void add_residual_on_cuda(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& bias) {
  const c10::DeviceGuard guard(x.device());
  const cuda::AddResidual call = {.x = x.mutable_data_ptr(),
                                  .residual = residual.const_data_ptr(),
                                  .bias = data_or_null(bias),
                                  .pixels = x.numel() / x.size(3),
                                  .channels = static_cast<int>(x.size(3)),
                                  .element = scalar_of(x)};
  check_launch(cuda::add_residual(call, current_stream(x.device())), "residual");
}

at::Tensor repeat_on_cuda(const at::Tensor& x, const at::Tensor& bias, int64_t space, bool twice) {
  const c10::DeviceGuard guard(x.device());
  const int64_t frames = x.size(0);
  at::Tensor out = at::empty(
      {twice ? 2 * frames - frames % 2 : frames, space * x.size(1), space * x.size(2), x.size(3)}, x.options());
  const cuda::Repeat call = {.x = x.const_data_ptr(),
                             .bias = data_or_null(bias),
                             .out = out.mutable_data_ptr(),
                             .frames = static_cast<int>(frames),
                             .height = static_cast<int>(x.size(1)),
                             .width = static_cast<int>(x.size(2)),
                             .channels = static_cast<int>(x.size(3)),
                             .space = static_cast<int>(space),
                             .twice = twice,
                             .element = scalar_of(x)};
  check_launch(cuda::repeat(call, current_stream(x.device())), "repetition");
  return out;
}

}  // namespace sparsereel::models
