// The loops of int8_kernels.h, compiled once per instruction set. Numbers are widened to 16 bits, because instructions
// that multiply 8-bit pairs saturate on older processors.
#include "models/layers/int8_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SPARSEREEL_INT8_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SPARSEREEL_INT8_CLONES
#endif

namespace sparsereel::models {
namespace {

constexpr int64_t kWeightRows = 4, kInputRows = 2;  // size of a tile of the result, whose sums stay in registers
constexpr float kLeastScale = 1e-30F;               // scale of a row of zeros; other programs use the same number

inline __attribute__((always_inline)) void widen(const int8_t* from, int64_t count, int16_t* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}

/// Multiplies two rows of x by four rows of the weight. At an edge, the caller repeats a row in place of a missing one
/// and drops its sums.
inline __attribute__((always_inline)) void multiply_tile(const int16_t* const* x, const int16_t* const* w,
                                                         int64_t depth, int32_t (*sums)[kWeightRows]) {
  const int16_t* __restrict x0 = x[0], * __restrict x1 = x[1];
  const int16_t* __restrict w0 = w[0], * __restrict w1 = w[1], * __restrict w2 = w[2], * __restrict w3 = w[3];
  int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
  for (int64_t k = 0; k < depth; ++k) {
    a0 += x0[k] * w0[k];
    a1 += x0[k] * w1[k];
    a2 += x0[k] * w2[k];
    a3 += x0[k] * w3[k];
    b0 += x1[k] * w0[k];
    b1 += x1[k] * w1[k];
    b2 += x1[k] * w2[k];
    b3 += x1[k] * w3[k];
  }
  sums[0][0] = a0, sums[0][1] = a1, sums[0][2] = a2, sums[0][3] = a3;
  sums[1][0] = b0, sums[1][1] = b1, sums[1][2] = b2, sums[1][3] = b3;
}

}  // namespace

SPARSEREEL_INT8_CLONES void multiply_int8(const Int8Product& p) {
  std::vector<int16_t> inputs(static_cast<size_t>(p.rows * p.depth)),
      weights(static_cast<size_t>(kWeightRows * p.depth));
  widen(p.x, p.rows * p.depth, inputs.data());
  for (int64_t n = 0; n < p.columns; n += kWeightRows) {
    const int64_t count = std::min(kWeightRows, p.columns - n);
    widen(p.weight + n * p.depth, count * p.depth, weights.data());
    const int16_t* w[kWeightRows];
    for (int64_t j = 0; j < kWeightRows; ++j) w[j] = weights.data() + std::min(j, count - 1) * p.depth;
    for (int64_t m = 0; m < p.rows; m += kInputRows) {
      const int64_t pair = std::min(kInputRows, p.rows - m);
      const int16_t* x[] = {inputs.data() + m * p.depth, inputs.data() + (m + pair - 1) * p.depth};
      int32_t sums[kInputRows][kWeightRows];
      multiply_tile(x, w, p.depth, sums);
      for (int64_t i = 0; i < pair; ++i)
        for (int64_t j = 0; j < count; ++j) p.out[(m + i) * p.out_stride + n + j] = sums[i][j];
    }
  }
}

SPARSEREEL_INT8_CLONES float quantize_row(const QuantizedRow& p) {
  float most = 0, zero = 0;
  for (int64_t i = 0; i < p.columns; ++i) {
    most = std::max(most, std::abs(p.x[i]));
    // Becomes NaN if any number is NaN or infinite.
    zero += p.x[i] * 0;
  }
  if (zero != 0 || std::isnan(zero)) {
    std::fill_n(p.values, p.columns, int8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float scale = std::max(most / 127, kLeastScale);
  for (int64_t i = 0; i < p.columns; ++i)
    p.values[i] = static_cast<int8_t>(std::clamp(std::rint(p.x[i] / scale), -128.0F, 127.0F));
  return scale;
}

}  // namespace sparsereel::models
