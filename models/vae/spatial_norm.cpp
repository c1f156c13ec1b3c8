// Spatial normalisation: statistics of the groups, then one scale and shift a latent pixel and channel.
#include "models/vae/spatial_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tuple>
#include <vector>

#include "models/vae/norm_kernels.h"
#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

constexpr double kEps = 1e-6;             // the reference ignores the config's norm_eps here
constexpr int64_t kPixelsPerTask = 4096;  // at least, for a thread of its own

// Group norm as x * scale + shift, [C] each, fp32.
struct ChannelAffine {
  at::Tensor scale, shift;
};

ChannelAffine to_channel_affine(const SpatialNorm& norm, const at::Tensor& mean, const at::Tensor& variance) {
  const int64_t per_group = norm.norm.weight.numel() / norm.groups;
  const at::Tensor reciprocal = (variance.to(at::kDouble) + kEps).rsqrt().to(at::kFloat).repeat_interleave(per_group);
  const at::Tensor scale = norm.norm.weight.to(at::kFloat) * reciprocal;
  return {.scale = scale,
          .shift = norm.norm.bias.to(at::kFloat) - mean.to(at::kFloat).repeat_interleave(per_group) * scale};
}

// Mean and variance of each group in fp32, a frame at a time so that the fp32 copy stays small.
ChannelAffine group_statistics(const SpatialNorm& norm, const at::Tensor& x) {
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
  return to_channel_affine(norm, mean, variance);
}

void modulate_frames(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, at::Tensor& out) {
  const int64_t frames = x.size(0), latent_frames = scale.size(0), height = scale.size(1), width = scale.size(2);
  const int64_t channels = x.size(3);
  for (int64_t t = 0; t < frames; ++t) {
    const int64_t tz = latent_frame_of(t, frames, latent_frames);
    const at::Tensor frame = x[t].to(at::kFloat).view({height, x.size(1) / height, width, x.size(2) / width, channels});
    at::Tensor result = at::addcmul(shift[tz].view({height, 1, width, 1, channels}), frame,
                                    scale[tz].view({height, 1, width, 1, channels}));
    out[t].copy_(at::silu_(result).view(x[t].sizes()));
  }
}

// The same two steps on a CPU in fp32, each one pass over the activations.
ChannelAffine group_statistics_cpu(const SpatialNorm& norm, const at::Tensor& x) {
  const int64_t channels = x.size(3), pixels = x.numel() / channels;
  const float* data = x.const_data_ptr<float>();
  // One slot a task, added in order: the sums are the same whatever the number of threads.
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
  moments.div_(static_cast<double>(pixels));  // mean and mean square of x - origin
  const at::Tensor channel_mean = moments[0] + x.view({-1, channels})[0].to(at::kDouble);
  const at::Tensor channel_variance = moments[1] - moments[0].square();
  const at::Tensor mean = channel_mean.view({norm.groups, -1}).mean(1);
  const at::Tensor spread = (channel_mean.view({norm.groups, -1}) - mean.unsqueeze(1)).square();
  return to_channel_affine(norm, mean, (channel_variance.view({norm.groups, -1}) + spread).mean(1));
}

void modulate_frames_cpu(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, at::Tensor& out) {
  const int64_t frames = x.size(0), height = x.size(1), row = x.size(2) * x.size(3);
  const int64_t latent_height = scale.size(1), latent_width = scale.size(2), channels = x.size(3);
  const float *source = x.const_data_ptr<float>(), *a = scale.const_data_ptr<float>(),
              *b = shift.const_data_ptr<float>();
  auto* destination = out.mutable_data_ptr<float>();
  at::parallel_for(
      0, frames * height, std::max<int64_t>(1, kPixelsPerTask / x.size(2)), [&](int64_t start, int64_t end) {
        for (int64_t i = start; i < end; ++i) {
          const int64_t tz = latent_frame_of(i / height, frames, scale.size(0));
          const int64_t latent = (tz * latent_height + i % height * latent_height / height) * latent_width * channels;
          modulate_silu({.x = source + i * row,
                         .out = destination + i * row,
                         .scale = a + latent,
                         .shift = b + latent,
                         .latent_width = latent_width,
                         .repeat = x.size(2) / latent_width,
                         .channels = channels});
        }
      });
}

}  // namespace

SpatialNorm read_spatial_norm(WeightReader& reader, const std::string& name, int64_t channels, int64_t latent_channels,
                              int64_t groups) {
  SpatialNorm norm{.norm = {}, .conv_y = {}, .conv_b = {}, .groups = groups};
  const std::vector<int64_t> stored = {channels, latent_channels, 1, 1, 1};
  norm.norm.weights(reader.loads(), name + ".norm_layer", channels);
  norm.conv_y.weights(reader.loads(), name + ".conv_y.conv", channels, latent_channels, true, stored);
  norm.conv_b.weights(reader.loads(), name + ".conv_b.conv", channels, latent_channels, true, stored);
  return norm;
}

int64_t latent_frame_of(int64_t t, int64_t frames, int64_t latent_frames) {
  if (frames == 1) return 0;
  if (frames % 2 == 0) return t * latent_frames / frames;
  return t == 0 ? 0 : 1 + (t - 1) * (latent_frames - 1) / (frames - 1);
}

void spatial_norm_silu(const SpatialNorm& norm, const at::Tensor& x, const at::Tensor& z, at::Tensor out,
                       const at::Tensor& input_bias) {
  const at::Tensor y = linear(z, norm.conv_y), b = linear(z, norm.conv_b);
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x) && has_vae_kernels(out))
    return spatial_norm_silu_on_cuda(norm, kEps, x, input_bias, y, b, out);
#endif
  if (input_bias.defined()) return spatial_norm_silu(norm, x + input_bias, z, out);
  const bool fused = x.is_cpu() && x.scalar_type() == at::kFloat;
  const ChannelAffine affine = fused ? group_statistics_cpu(norm, x) : group_statistics(norm, x);
  const at::Tensor factor = y.to(at::kFloat);
  const at::Tensor scale = factor * affine.scale, shift = at::addcmul(b.to(at::kFloat), factor, affine.shift);
  fused ? modulate_frames_cpu(x, scale, shift, out) : modulate_frames(x, scale, shift, out);
}

}  // namespace sparsereel::models
