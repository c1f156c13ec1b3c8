// The elementwise kernels of VAE decoders as plain functions of raw pointers, sizes and a stream. No torch, no CUDA
// header. Activations are [frames, height, width, channels], contiguous, aligned to 16 bytes, with channels a multiple
// of 8. All functions compute in fp32, enqueue kernels without waiting, and return null or CUDA's error message. Their
// CPU counterparts are vae/norm_kernels.h and torch's operators.
#pragma once

#include <cstdint>

#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {

constexpr int kStatisticsBlocks = 512;  // most partial sums per frame in the scratch memory of group_statistics()
constexpr int kMaxStatisticsChannels = 2048;

/// Expresses the group norm of x + input_bias as a scale and a shift of x. Each frame has its own statistics.
struct GroupStatistics {
  const void* x = nullptr;           // Scalar [frames, pixels, channels]
  const void* input_bias = nullptr;  // Scalar [channels]; null if there is no bias
  const void* weight = nullptr;      // Scalar [channels]
  const void* bias = nullptr;        // Scalar [channels]
  float* partials = nullptr;         // scratch [frames, kStatisticsBlocks, 2, channels]
  float* scale = nullptr;            // [frames, channels], written
  float* shift = nullptr;            // [frames, channels], written
  /// [2, frames, groups]: if not null, means and variances are written here, and scale and shift are not written.
  double* moments = nullptr;
  int frames = 1;
  int64_t pixels = 0;
  int channels = 0;  // at most kMaxStatisticsChannels
  int groups = 0;
  float eps = 0;
  Scalar element = Scalar::bf16;
};

const char* group_statistics(const GroupStatistics& p, Stream stream);

/// Computes out = silu(x * scale + shift), with scale and shift per frame.
struct ScaleSilu {
  const void* x = nullptr;       // Scalar [frames, height, width, channels]
  void* out = nullptr;           // the same shape; out_frame and out_row are the strides of frames and rows
  const float* scale = nullptr;  // [frames, channels]
  const float* shift = nullptr;
  int frames = 0, height = 0, width = 0, channels = 0;
  int64_t out_frame = 0, out_row = 0;  // strides in elements, multiples of 8
  Scalar element = Scalar::bf16;
};

const char* scale_silu(const ScaleSilu& p, Stream stream);

/// Computes out = silu((x * scale + shift) * y + b), with y and b from the latent pixel to which the pixel of x
/// belongs.
struct ModulateSilu {
  const void* x = nullptr;       // Scalar [frames, height, width, channels]
  void* out = nullptr;           // the same shape; may be x
  const float* scale = nullptr;  // [channels]
  const float* shift = nullptr;  // [channels]
  const void* y = nullptr;       // Scalar [latent_frames, latent_height, latent_width, channels]
  const void* b = nullptr;       // the same shape
  int frames = 0, height = 0, width = 0, channels = 0;
  // latent_height must divide height, and latent_width width.
  int latent_frames = 0, latent_height = 0, latent_width = 0;
  Scalar element = Scalar::bf16;
};

const char* modulate_silu(const ModulateSilu& p, Stream stream);

/// Computes out = silu((x + input_bias) / max(|x + input_bias|, least_norm) * sqrt(channels) * gamma), where |x| is the
/// Euclidean norm of a pixel's channels.
struct RmsNormSilu {
  const void* x = nullptr;           // Scalar [pixels, channels]
  const void* input_bias = nullptr;  // Scalar [channels]; null if there is no bias
  const void* gamma = nullptr;       // Scalar [channels]
  void* out = nullptr;               // the same shape; may be x
  int64_t pixels = 0;
  int channels = 0;  // at most kMaxStatisticsChannels
  float least_norm = 0;
  Scalar element = Scalar::bf16;
};

const char* rms_norm_silu(const RmsNormSilu& p, Stream stream);

/// Computes x += residual + bias.
struct AddResidual {
  void* x = nullptr;               // Scalar [pixels, channels]
  const void* residual = nullptr;  // the same shape
  const void* bias = nullptr;      // Scalar [channels]; null if there is no bias
  int64_t pixels = 0;
  int channels = 0;
  Scalar element = Scalar::bf16;
};

const char* add_residual(const AddResidual& p, Stream stream);

/// Repeats every pixel of x + bias `space` x `space` times. With `twice`, every frame is also repeated, except the
/// first one if the number of frames is odd.
struct Repeat {
  const void* x = nullptr;     // Scalar [frames, height, width, channels]
  const void* bias = nullptr;  // Scalar [channels]; null if there is no bias
  void* out = nullptr;         // [frames', space height, space width, channels]
  int frames = 0, height = 0, width = 0, channels = 0;
  int space = 1;  // 1 or 2
  bool twice = false;
  Scalar element = Scalar::bf16;
};

const char* repeat(const Repeat& p, Stream stream);

}  // namespace sparsereel::models::cuda
