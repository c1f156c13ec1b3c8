// The elementwise kernels of VAE decoders as plain functions: raw pointers, sizes and a stream. No torch, no CUDA
// header. Activations are [frames, height, width, channels], contiguous, on 16 bytes, channels a multiple of 8; all
// compute in fp32, enqueue without waiting, and return null or what CUDA said. Their CPU twins are vae/norm_kernels.h
// and torch's operators.
#pragma once

#include <cstdint>

#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {

constexpr int kStatisticsBlocks = 512;  // partial sums that group_statistics() needs room for
constexpr int kMaxStatisticsChannels = 2048;

/// Group norm of x + input_bias as a scale and a shift of x, each frame by its own statistics.
struct GroupStatistics {
  const void* x = nullptr;           // Scalar [frames, pixels, channels]
  const void* input_bias = nullptr;  // Scalar [channels], null: none
  const void* weight = nullptr;      // Scalar [channels]
  const void* bias = nullptr;        // Scalar [channels]
  float* partials = nullptr;         // scratch [frames, kStatisticsBlocks, 2, channels]
  float* scale = nullptr;            // [frames, channels], written
  float* shift = nullptr;            // [frames, channels], written
  double* moments = nullptr;         // [2, frames, groups], means and variances, written in place of both; null: no
  int frames = 1;
  int64_t pixels = 0;
  int channels = 0;  // at most kMaxStatisticsChannels
  int groups = 0;
  float eps = 0;
  Scalar element = Scalar::bf16;
};

const char* group_statistics(const GroupStatistics& p, Stream stream);

/// out = silu(x * scale + shift), scale and shift of the frame.
struct ScaleSilu {
  const void* x = nullptr;       // Scalar [frames, height, width, channels]
  void* out = nullptr;           // the same, its frames and rows so far apart:
  const float* scale = nullptr;  // [frames, channels]
  const float* shift = nullptr;
  int frames = 0, height = 0, width = 0, channels = 0;
  int64_t out_frame = 0, out_row = 0;  // in elements, multiples of 8
  Scalar element = Scalar::bf16;
};

const char* scale_silu(const ScaleSilu& p, Stream stream);

/// out = silu((x * scale + shift) * y + b), y and b of the latent pixel that x belongs to.
struct ModulateSilu {
  const void* x = nullptr;       // Scalar [frames, height, width, channels]
  void* out = nullptr;           // the same; may be x
  const float* scale = nullptr;  // [channels]
  const float* shift = nullptr;  // [channels]
  const void* y = nullptr;       // Scalar [latent_frames, latent_height, latent_width, channels]
  const void* b = nullptr;       // the same
  int frames = 0, height = 0, width = 0, channels = 0;
  int latent_frames = 0, latent_height = 0, latent_width = 0;  // the latter two divide height and width
  Scalar element = Scalar::bf16;
};

const char* modulate_silu(const ModulateSilu& p, Stream stream);

/// out = silu((x + input_bias) / max(|x + input_bias|, least_norm) * sqrt(channels) * gamma).
struct RmsNormSilu {
  const void* x = nullptr;           // Scalar [pixels, channels]
  const void* input_bias = nullptr;  // Scalar [channels], null: none
  const void* gamma = nullptr;       // Scalar [channels]
  void* out = nullptr;               // as x; may be x
  int64_t pixels = 0;
  int channels = 0;  // at most kMaxStatisticsChannels
  float least_norm = 0;
  Scalar element = Scalar::bf16;
};

const char* rms_norm_silu(const RmsNormSilu& p, Stream stream);

/// x += residual + bias.
struct AddResidual {
  void* x = nullptr;               // Scalar [pixels, channels]
  const void* residual = nullptr;  // the same
  const void* bias = nullptr;      // Scalar [channels]; null: none
  int64_t pixels = 0;
  int channels = 0;
  Scalar element = Scalar::bf16;
};

const char* add_residual(const AddResidual& p, Stream stream);

/// Every pixel of x + bias `space` x `space` times, and every frame twice where `twice` is set, but for the first of an
/// odd number of frames.
struct Repeat {
  const void* x = nullptr;     // Scalar [frames, height, width, channels]
  const void* bias = nullptr;  // Scalar [channels]; null: none
  void* out = nullptr;         // [frames', space height, space width, channels]
  int frames = 0, height = 0, width = 0, channels = 0;
  int space = 1;  // 1 or 2
  bool twice = false;
  Scalar element = Scalar::bf16;
};

const char* repeat(const Repeat& p, Stream stream);

}  // namespace sparsereel::models::cuda
