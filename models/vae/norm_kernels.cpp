// The loops of norm_kernels.h, compiled once per instruction set. When the program starts, the loader picks the best
// one for the processor (GCC's target_clones).
#include "models/vae/norm_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SPARSEREEL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SPARSEREEL_CLONES
#endif
#define SPARSEREEL_INLINE inline __attribute__((always_inline))

namespace sparsereel::models {
namespace {

constexpr int64_t kChannelLanes = 16;    // channels that are computed at once: one AVX-512 register
constexpr int64_t kPixelsInFloat = 128;  // pixels that are summed in fp32 before the sum is added in fp64

// Returns exp(x) with an error of at most 2 units in the last place, without branches. With x = n ln 2 + r and |r| <=
// ln 2 / 2, exp(x) = 2^n exp(r), and a Taylor polynomial gives exp(r).
SPARSEREEL_INLINE float exponential(float x) {
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, which is in the low bits
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  // The constant ln 2 is split into two parts, so that n times the first part is exact.
  const float r = (x - n * 0.693145752F) - n * 1.42860677e-6F;
  float sum = 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounder);
  return sum * std::bit_cast<float>((exponent + 127) << 23);
}

// Adds the sums and sums of squares of `lanes` channels, over `pixels` pixels that lie `stride` floats apart.
SPARSEREEL_INLINE void moments_of_lanes(const float* x, const float* origin, int64_t pixels, int64_t stride,
                                        int64_t lanes, double* sum, double* squares) {
  float first[kChannelLanes] = {}, second[kChannelLanes] = {};
  for (int64_t pixel = 0; pixel < pixels; ++pixel, x += stride) {
    for (int64_t i = 0; i < lanes; ++i) {
      const float difference = x[i] - origin[i];
      first[i] += difference;
      second[i] += difference * difference;
    }
  }
  for (int64_t i = 0; i < lanes; ++i) {
    sum[i] += first[i];
    squares[i] += second[i];
  }
}

SPARSEREEL_INLINE void modulate_lanes(const float* __restrict x, float* __restrict out, const float* scale,
                                      const float* shift, int64_t pixels, int64_t stride, int64_t lanes) {
  float a[kChannelLanes], b[kChannelLanes];
  for (int64_t i = 0; i < lanes; ++i) {
    a[i] = scale[i];
    b[i] = shift[i];
  }
  for (int64_t pixel = 0; pixel < pixels; ++pixel, x += stride, out += stride) {
    for (int64_t i = 0; i < lanes; ++i) {
      const float value = x[i] * a[i] + b[i];
      out[i] = value / (1.0F + exponential(-value));
    }
  }
}

SPARSEREEL_INLINE float sum_of_squares(const float* x, int64_t channels) {
  float sums[kChannelLanes] = {};
  int64_t c = 0;
  for (; c + kChannelLanes <= channels; c += kChannelLanes) {
    for (int64_t i = 0; i < kChannelLanes; ++i) sums[i] += x[c + i] * x[c + i];
  }
  for (int64_t i = 0; c + i < channels; ++i) sums[i] += x[c + i] * x[c + i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace

SPARSEREEL_CLONES void add_channel_moments(const ChannelMoments& p) {
  const int64_t whole = p.channels / kChannelLanes * kChannelLanes;
  for (int64_t start = 0; start < p.pixels; start += kPixelsInFloat) {
    const int64_t pixels = std::min(kPixelsInFloat, p.pixels - start);
    const float* x = p.x + start * p.channels;
    for (int64_t c = 0; c < whole; c += kChannelLanes)
      moments_of_lanes(x + c, p.origin + c, pixels, p.channels, kChannelLanes, p.sum + c, p.squares + c);
    if (whole < p.channels)
      moments_of_lanes(x + whole, p.origin + whole, pixels, p.channels, p.channels - whole, p.sum + whole,
                       p.squares + whole);
  }
}

SPARSEREEL_CLONES void modulate_silu(const ModulatedRow& p) {
  const int64_t whole = p.channels / kChannelLanes * kChannelLanes;
  for (int64_t w = 0; w < p.latent_width; ++w) {
    const int64_t pixel = w * p.repeat * p.channels, latent = w * p.channels;
    for (int64_t c = 0; c < whole; c += kChannelLanes)
      modulate_lanes(p.x + pixel + c, p.out + pixel + c, p.scale + latent + c, p.shift + latent + c, p.repeat,
                     p.channels, kChannelLanes);
    if (whole < p.channels)
      modulate_lanes(p.x + pixel + whole, p.out + pixel + whole, p.scale + latent + whole, p.shift + latent + whole,
                     p.repeat, p.channels, p.channels - whole);
  }
}

SPARSEREEL_CLONES void normalize_silu(const NormalizedPixels& p) {
  for (int64_t pixel = 0; pixel < p.pixels; ++pixel) {
    const float* __restrict x = p.x + pixel * p.channels;
    float* __restrict out = p.out + pixel * p.channels;
    const float norm = std::max(std::sqrt(sum_of_squares(x, p.channels)), static_cast<float>(kLeastNorm));
    const float inverse = 1.0F / norm;
    for (int64_t c = 0; c < p.channels; ++c) {
      const float value = x[c] * inverse * p.scale[c];
      out[c] = value / (1.0F + exponential(-value));
    }
  }
}

}  // namespace sparsereel::models
