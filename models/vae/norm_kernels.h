// The loops of the decoders' norms on fp32 activations on a CPU. Each call runs on one thread. No torch.
#pragma once

#include <cstdint>

namespace sparsereel::models {

/// Sums of each channel over some pixels. They are sums of differences from `origin`, which must be near the values, so
/// that a variance computed from them does not lose precision by cancellation.
struct ChannelMoments {
  const float* x;       // [pixels, channels]
  const float* origin;  // [channels]
  double* sum;          // [channels]; receives the sum of x - origin
  double* squares;      // [channels]; receives the sum of (x - origin)^2
  int64_t pixels;
  int64_t channels;
};

/// Adds the sums of these pixels to sum and squares.
void add_channel_moments(const ChannelMoments& p);

/// One row of pixels, for modulate_silu(). `repeat` neighboring pixels have the scale and shift of one latent pixel.
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
