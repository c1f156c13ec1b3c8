// Products of int8 matrices on a CPU. No torch.
#pragma once

#include <cstdint>

namespace sparsereel::models {

/// Rows of x times rows of a weight: out[m][n] = sum of x[m][k] * weight[n][k], exactly. The sums must fit into int32.
struct Int8Product {
  const int8_t* x;       // [rows, depth]
  const int8_t* weight;  // [columns, depth]
  int32_t* out;          // [rows, columns], rows `out_stride` apart
  int64_t rows, columns, depth, out_stride;
};

/// Computes a product with one thread. Call it with a few tens of rows, so that they stay in the cache.
void multiply_int8(const Int8Product& p);

/// A row of fp32 numbers and its int8 values.
struct QuantizedRow {
  const float* x;  // [columns]
  int8_t* values;  // [columns]
  int64_t columns;
};

/// Quantizes a row, and returns its scale; see quantize_int8().
float quantize_row(const QuantizedRow& p);

}  // namespace sparsereel::models
