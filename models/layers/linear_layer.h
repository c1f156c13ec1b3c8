// A linear layer's weight, bias and scales.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/layers/parameters.h"

namespace sparsereel::models {

/// The parameters of a matrix product.
struct Linear {
  at::Tensor weight{};  // [out, in] in the run's dtype or e4m3; if `rows` is not empty, the bytes of packed rows
  at::Tensor bias{};    // [out]; undefined if the layer has no bias
  at::Tensor scale{};   // fp32 [out], one for each row of an 8-bit weight
  // Where packed rows lie within `weight`; empty if `weight` is [out, in]. A product unpacks the rows, or multiplies
  // them in integers if StoredRows::multiplies is set.
  std::vector<StoredRows> rows{};

  /// Returns true if the weight is e4m3, so that the product is computed in 8-bit floating point.
  bool is_fp8() const { return rows.empty() && scale.defined(); }
  /// Returns the layer with a weight [out, in] of `dtype`: unpacks a packed weight, or returns the layer as it is.
  Linear in(at::ScalarType dtype) const;
  /// Returns the part of the layer that computes `count` consecutive outputs. If the weight is packed, it must be int8
  /// and have no LoRAs.
  Linear outputs(int64_t first, int64_t count) const;

  /// Lists the layer's weights, `name`.weight and `name`.bias. stored_weight is the weight's shape in files if it
  /// differs from [out, in], for example for a convolution.
  void weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, bool has_bias = true,
               std::vector<int64_t> stored_weight = {});
  /// Lists several stored layers [out, in] as one layer whose weights are stacked, so that one product replaces
  /// several. Their results are then parts of one row.
  void packed_weights(const Visit& visit, const std::vector<std::string>& names, int64_t out, int64_t in,
                      bool has_bias = true);
};

}  // namespace sparsereel::models
