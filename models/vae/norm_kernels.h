// The elementwise work of the decoders' norms on fp32 activations, on a CPU, one thread a call. No torch.
#pragma once

#include <cstdint>

namespace sparsereel::models {

/// Sums a channel over some pixels. Differences from an `origin` near the values, so that squares do not cancel.
struct ChannelMoments {
  const float* x;       // [pixels, channels]
  const float* origin;  // [channels]
  double* sum;          // [channels], sum of x - origin is added
  double* squares;      // [channels], sum of (x - origin)^2 is added
  int64_t pixels;
  int64_t channels;
};

void add_channel_moments(const ChannelMoments& p);

/// One row of pixels; `repeat` neighbouring pixels share a latent pixel's scale and shift.
struct ModulatedRow {
  const float* x;      // [latent_width, repeat, channels]
  float* out;          // the same, other memory
  const float* scale;  // [latent_width, channels]
  const float* shift;  // [latent_width, channels]
  int64_t latent_width;
  int64_t repeat;
  int64_t channels;
};

/// out = silu(x * scale + shift), silu(v) = v / (1 + exp(-v)).
void modulate_silu(const ModulatedRow& p);

/// A pixel's Euclidean norm counts as no less than this.
inline constexpr double kLeastNorm = 1e-12;

struct NormalisedPixels {
  const float* x;      // [pixels, channels]
  float* out;          // the same, other memory
  const float* scale;  // [channels]
  int64_t pixels;
  int64_t channels;
};

/// out = silu(x / |x| * scale), |x| over a pixel's channels.
void normalise_silu(const NormalisedPixels& p);

}  // namespace sparsereel::models
