// One pass over memory computes the statistics, and another one the result. Our own loops compute fp32 on a CPU, our
// kernels compute on a GPU, and torch's operators compute the rest.
#include "models/vae/group_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "models/vae/norm_kernels.h"
#include "models/vae/row_split.h"
#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

constexpr int64_t kPixelsPerTask = 4096;  // fewer pixels are not worth a thread

bool is_fp32_on_cpu(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat;
}

// Returns mean and variance of each group, fp64 [2, groups]. Works on one frame at a time, to keep its fp32 copy small.
at::Tensor group_moments(const GroupNorm& norm, const at::Tensor& x) {
  const int64_t frames = x.size(0), channels = x.size(3);
  std::vector<at::Tensor> means, variances;
  for (int64_t t = 0; t < frames; ++t) {
    const at::Tensor frame = x[t].to(at::kFloat).view({-1, norm.groups, channels / norm.groups});
    auto [variance, mean] = at::var_mean(frame, at::IntArrayRef{0, 2}, /*correction=*/at::Scalar(0));
    means.push_back(mean.to(at::kDouble));
    variances.push_back(variance.to(at::kDouble));
  }
  const at::Tensor frame_means = at::stack(means);
  const at::Tensor mean = frame_means.mean(0);
  const at::Tensor variance = at::stack(variances).mean(0) + (frame_means - mean).square().mean(0);
  return at::stack({mean, variance});
}

at::Tensor group_moments_cpu(const GroupNorm& norm, const at::Tensor& x) {
  const int64_t channels = x.size(3), pixels = x.numel() / channels;
  const float* data = x.const_data_ptr<float>();
  // Each task writes to a slot of its own, and the slots are added in order. So the sums do not depend on the number of
  // threads.
  const int64_t tasks = (pixels + kPixelsPerTask - 1) / kPixelsPerTask;
  at::Tensor parts = at::zeros({tasks, 2, channels}, at::kDouble);
  auto* slots = parts.mutable_data_ptr<double>();
  at::parallel_for(0, tasks, 1, [&](int64_t start, int64_t end) {
    for (int64_t task = start; task < end; ++task) {
      const int64_t first = task * kPixelsPerTask;
      double* slot = slots + task * 2 * channels;
      add_channel_moments({.x = data + first * channels,
                           .origin = data,
                           .sum = slot,
                           .squares = slot + channels,
                           .pixels = std::min(kPixelsPerTask, pixels - first),
                           .channels = channels});
    }
  });
  at::Tensor moments = parts.sum(0);
  moments.div_(static_cast<double>(pixels));  // now mean and mean square of x - origin
  const at::Tensor channel_mean = moments[0] + x.view({-1, channels})[0].to(at::kDouble);
  const at::Tensor channel_variance = moments[1] - moments[0].square();
  const at::Tensor mean = channel_mean.view({norm.groups, -1}).mean(1);
  const at::Tensor spread = (channel_mean.view({norm.groups, -1}) - mean.unsqueeze(1)).square();
  return at::stack({mean, (channel_variance.view({norm.groups, -1}) + spread).mean(1)});
}

// Computes out = silu(frame * scale + shift). frame and out are [H, W, C]; the rows of out may lie farther apart.
void scale_silu_cpu(const at::Tensor& frame, const ChannelAffine& affine, at::Tensor& out) {
  const int64_t width = frame.size(1), channels = frame.size(2), out_row = out.stride(0);
  const float *source = frame.const_data_ptr<float>(), *scale = affine.scale.const_data_ptr<float>(),
              *shift = affine.shift.const_data_ptr<float>();
  auto* destination = out.mutable_data_ptr<float>();
  at::parallel_for(0, frame.size(0), std::max<int64_t>(1, kPixelsPerTask / width), [&](int64_t start, int64_t end) {
    for (int64_t row = start; row < end; ++row) {
      modulate_silu({.x = source + row * width * channels,
                     .out = destination + row * out_row,
                     .scale = scale,
                     .shift = shift,
                     .latent_width = 1,
                     .repeat = width,
                     .channels = channels});
    }
  });
}

void scale_silu(const at::Tensor& frame, const ChannelAffine& affine, at::Tensor out) {
  if (is_fp32_on_cpu(frame)) return scale_silu_cpu(frame, affine, out);
  out.copy_(at::silu(at::addcmul(affine.shift, frame.to(at::kFloat), affine.scale)));
}

}  // namespace

ChannelAffine group_affine(const GroupNorm& norm, const at::Tensor& x, const RowSplit* rows) {
  at::Tensor moments = is_fp32_on_cpu(x) ? group_moments_cpu(norm, x) : group_moments(norm, x);
  if (rows != nullptr) moments = rows->joined_moments(moments);
  return to_channel_affine(norm, moments);
}

void group_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out, const at::Tensor& input_bias,
                     const RowSplit* rows) {
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x)) return group_norm_silu_on_cuda(norm, x, input_bias, out, rows);
#endif
  if (input_bias.defined()) return group_norm_silu(norm, x + input_bias, out, {}, rows);
  for (int64_t t = 0; t < x.size(0); ++t) scale_silu(x[t], group_affine(norm, x.narrow(0, t, 1), rows), out[t]);
}

void video_norm_silu(const GroupNorm& norm, const at::Tensor& x, const at::Tensor& out, const at::Tensor& input_bias,
                     const RowSplit* rows) {
#ifdef SPARSEREEL_CUDA
  const auto as_picture = [](const at::Tensor& frames) {
    return frames.view({1, frames.size(0) * frames.size(1), frames.size(2), frames.size(3)});
  };
  if (has_vae_kernels(x) && rows == nullptr)
    return group_norm_silu_on_cuda(norm, as_picture(x), input_bias, as_picture(out));
  if (has_vae_kernels(x)) return video_norm_silu_on_cuda(norm, x, input_bias, out, *rows);
#endif
  if (input_bias.defined()) return video_norm_silu(norm, x + input_bias, out, {}, rows);
  const ChannelAffine affine = group_affine(norm, x, rows);
  for (int64_t t = 0; t < x.size(0); ++t) scale_silu(x[t], affine, out[t]);
}

}  // namespace sparsereel::models
