// A linear layer's weight, bias and scales.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/layers/parameters.h"

namespace sparsereel::models {

/// What a matrix product needs beside its input.
struct Linear {
  at::Tensor weight{};             // [out, in] in the run's dtype or in e4m3; bytes where `rows` says so
  at::Tensor bias{};               // [out]; undefined: none
  at::Tensor scale{};              // fp32 [out], of the rows of an 8-bit weight
  std::vector<StoredRows> rows{};  // of a weight that is unpacked for each product

  /// Whether the product is one of 8 bits.
  bool is_fp8() const { return rows.empty() && scale.defined(); }
  /// Itself, or with the weight unpacked.
  Linear in(at::ScalarType dtype) const;
  /// Of neighbours among its outputs; of a weight that is not packed.
  Linear outputs(int64_t first, int64_t count) const;

  /// Stored as `name`.weight and `name`.bias; stored_weight: in another shape than [out, in], such as a convolution's.
  void weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, bool has_bias = true,
               std::vector<int64_t> stored_weight = {});
  /// One product instead of several: layers [out, in] that are stored apart stand below each other, and their results
  /// are then parts of one row.
  void packed_weights(const Visit& visit, const std::vector<std::string>& names, int64_t out, int64_t in,
                      bool has_bias = true);
};

}  // namespace sparsereel::models
