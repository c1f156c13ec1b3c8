// Computes the group norm, then applies a scale and a shift for each latent pixel and channel.
#include "models/vae/spatial_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <vector>

#include "models/layers/linear.h"
#include "models/vae/group_norm.h"
#include "models/vae/norm_kernels.h"
#ifdef SPARSEREEL_CUDA
#include "models/vae/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

// The model's reference implementation uses this epsilon and ignores the config's norm_eps.
constexpr double kEps = 1e-6;
constexpr int64_t kPixelsOfTask = 4096;  // fewer pixels are not worth a thread

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

// Computes modulate_frames() on a CPU in fp32, in one pass over the activations.
void modulate_frames_cpu(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, at::Tensor& out) {
  const int64_t frames = x.size(0), height = x.size(1), row = x.size(2) * x.size(3);
  const int64_t latent_height = scale.size(1), latent_width = scale.size(2), channels = x.size(3);
  const int64_t out_frame = out.stride(0);
  const float *source = x.const_data_ptr<float>(), *a = scale.const_data_ptr<float>(),
              *b = shift.const_data_ptr<float>();
  auto* destination = out.mutable_data_ptr<float>();
  at::parallel_for(
      0, frames * height, std::max<int64_t>(1, kPixelsOfTask / x.size(2)), [&](int64_t start, int64_t end) {
        for (int64_t i = start; i < end; ++i) {
          const int64_t tz = latent_frame_of(i / height, frames, scale.size(0));
          const int64_t latent = (tz * latent_height + i % height * latent_height / height) * latent_width * channels;
          modulate_silu({.x = source + i * row,
                         .out = destination + i / height * out_frame + i % height * row,
                         .scale = a + latent,
                         .shift = b + latent,
                         .latent_width = latent_width,
                         .repeat = x.size(2) / latent_width,
                         .channels = channels});
        }
      });
}

}  // namespace

void list_spatial_norm(SpatialNorm& norm, const Visit& visit, const std::string& name, int64_t channels,
                       int64_t latent_channels) {
  const std::vector<int64_t> stored = {channels, latent_channels, 1, 1, 1};
  norm.norm.weights(visit, name + ".norm_layer", channels);
  norm.conv_y.weights(visit, name + ".conv_y.conv", channels, latent_channels, true, stored);
  norm.conv_b.weights(visit, name + ".conv_b.conv", channels, latent_channels, true, stored);
}

void spatial_norm_silu(const SpatialNorm& norm, const at::Tensor& x, const at::Tensor& z, at::Tensor out,
                       const at::Tensor& input_bias, const RowSplit* rows) {
  const at::Tensor y = linear(z, norm.conv_y), b = linear(z, norm.conv_b);
#ifdef SPARSEREEL_CUDA
  if (has_vae_kernels(x) && has_vae_kernels(out.narrow(0, 0, 1)))
    return spatial_norm_silu_on_cuda(norm, kEps, x, input_bias, y, b, out, rows);
#endif
  if (input_bias.defined()) return spatial_norm_silu(norm, x + input_bias, z, out, {}, rows);
  const bool fused = x.is_cpu() && x.scalar_type() == at::kFloat;
  const ChannelAffine affine = group_affine({norm.norm, norm.groups, kEps}, x, rows);
  const at::Tensor factor = y.to(at::kFloat);
  const at::Tensor scale = factor * affine.scale, shift = at::addcmul(b.to(at::kFloat), factor, affine.shift);
  fused ? modulate_frames_cpu(x, scale, shift, out) : modulate_frames(x, scale, shift, out);
}

}  // namespace sparsereel::models
