// The loops of row_kernels.h, compiled once per instruction set. When the program starts, the loader picks the best one
// for the processor (GCC's target_clones).
#include "models/layers/row_kernels.h"

#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SPARSEREEL_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SPARSEREEL_CLONES
#endif

namespace sparsereel::models {
namespace {

// A reduction keeps 64 partial sums ("lanes"), which fill four AVX-512 registers. A compiler can vectorize them without
// changing the order of floating-point additions.
constexpr int64_t kRowLanes = 64;

// Returns the sum of the lanes. Adds the second half of the lanes to the first half, and so on until one lane is left.
// This loses less precision than adding one lane after the other. Overwrites the lanes.
inline __attribute__((always_inline)) float add_up(float* lanes) {
  for (int64_t width = kRowLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace

SPARSEREEL_CLONES void layer_norm_rows(const LayerNormRows& p) {
  const int64_t channels = p.channels, whole = channels / kRowLanes * kRowLanes;
  const float* weight = p.weight;
  const float* bias = p.bias;
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* x = p.input + row * channels;
    float* y = p.output + row * channels;
    float lanes[kRowLanes] = {}, mean = 0;
    if (p.centers) {
      for (int64_t c = 0; c < whole; c += kRowLanes) {
        for (int64_t i = 0; i < kRowLanes; ++i) lanes[i] += x[c + i];
      }
      for (int64_t c = whole; c < channels; ++c) lanes[c - whole] += x[c];
      mean = add_up(lanes) / static_cast<float>(channels);
    }
    // The variance takes a second pass over the row, which is still in the first-level cache: mean(x^2) - mean(x)^2
    // would lose precision by cancellation.
    for (float& lane : lanes) lane = 0;
    for (int64_t c = 0; c < whole; c += kRowLanes) {
      for (int64_t i = 0; i < kRowLanes; ++i) lanes[i] += (x[c + i] - mean) * (x[c + i] - mean);
    }
    for (int64_t c = whole; c < channels; ++c) lanes[c - whole] += (x[c] - mean) * (x[c] - mean);
    const float scale = 1.0F / std::sqrt(add_up(lanes) / static_cast<float>(channels) + p.eps);
    for (int64_t c = 0; c < channels; ++c) y[c] = (x[c] - mean) * scale * weight[c] + bias[c];
  }
}

SPARSEREEL_CLONES void rms_norm_rows(const RmsNormRows& p) {
  const int64_t channels = p.channels, whole = channels / kRowLanes * kRowLanes;
  const float* __restrict factor = p.factor;
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* __restrict x = p.input + row * channels;
    float* __restrict y = p.output + row * channels;
    float lanes[kRowLanes] = {};
    for (int64_t c = 0; c < whole; c += kRowLanes) {
      for (int64_t i = 0; i < kRowLanes; ++i) lanes[i] += x[c + i] * x[c + i];
    }
    for (int64_t c = whole; c < channels; ++c) lanes[c - whole] += x[c] * x[c];
    const float scale = 1.0F / std::sqrt(add_up(lanes) / static_cast<float>(channels) + p.eps);
    if (p.adds) {
      for (int64_t c = 0; c < channels; ++c) y[c] += x[c] * scale * factor[c];
    } else {
      for (int64_t c = 0; c < channels; ++c) y[c] = x[c] * scale * factor[c];
    }
  }
}

SPARSEREEL_CLONES void add_gated_rows(const AddGatedRows& p) {
  const float* __restrict gate = p.gate;
  for (int64_t row = 0; row < p.rows; ++row) {
    float* __restrict residual = p.residual + row * p.channels;
    const float* __restrict update = p.update + row * p.channels;
    for (int64_t c = 0; c < p.channels; ++c) residual[c] += gate[c] * update[c];
  }
}

}  // namespace sparsereel::models
