// Elementwise work of the decoders' norms on fp32 activations on a CPU. Each call runs on one thread. No torch.
#pragma once

#include <cstdint>

namespace sparsereel::models {

/// Sums each channel over some pixels, as differences from an `origin` near the values, so that squares do not cancel.
struct ChannelMoments {
  const float* x;       // [pixels, channels]
  const float* origin;  // [channels]
  double* sum;          // [channels], to which the sum of x - origin is added
  double* squares;      // [channels], to which the sum of (x - origin)^2 is added
  int64_t pixels;
  int64_t channels;
};

void add_channel_moments(const ChannelMoments& p);

/// One row of pixels. `repeat` neighboring pixels share a latent pixel's scale and shift.
struct ModulatedRow {
  const float* x;      // [latent_width, repeat, channels]
  float* out;          // the same shape, not overlapping x
  const float* scale;  // [latent_width, channels]
  const float* shift;  // [latent_width, channels]
  int64_t latent_width;
  int64_t repeat;
  int64_t channels;
};

/// Computes out = silu(x * scale + shift), where silu(v) = v / (1 + exp(-v)).
void modulate_silu(const ModulatedRow& p);

/// Lower bound for the Euclidean norm of a pixel.
inline constexpr double kLeastNorm = 1e-12;

struct NormalizedPixels {
  const float* x;      // [pixels, channels]
  float* out;          // the same shape, not overlapping x
  const float* scale;  // [channels]
  int64_t pixels;
  int64_t channels;
};

/// Computes out = silu(x / |x| * scale), where |x| is the Euclidean norm of a pixel's channels.
void normalize_silu(const NormalizedPixels& p);

}  // namespace sparsereel::models
