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
  at::Tensor weight{};             // [out, in] in the run's dtype or e4m3; bytes if `rows` is not empty
  at::Tensor bias{};               // [out]; undefined for none
  at::Tensor scale{};              // fp32 [out], for the rows of an 8-bit weight
  std::vector<StoredRows> rows{};  // layout of a weight that is unpacked for each product

  /// Returns true if the product is computed in 8 bits.
  bool is_fp8() const { return rows.empty() && scale.defined(); }
  /// Returns the layer, unpacked to `dtype` if it is packed.
  Linear in(at::ScalarType dtype) const;
  /// Returns the layer for `count` consecutive outputs. The weight must not be packed.
  Linear outputs(int64_t first, int64_t count) const;

  /// Lists `name`.weight and `name`.bias. stored_weight is the stored shape if that is not [out, in], as for a
  /// convolution.
  void weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, bool has_bias = true,
               std::vector<int64_t> stored_weight = {});
  /// Lists several stored layers [out, in] as one, stacked, so that one product replaces several. Their results are
  /// then parts of one row.
  void packed_weights(const Visit& visit, const std::vector<std::string>& names, int64_t out, int64_t in,
                      bool has_bias = true);
};

}  // namespace sparsereel::models
