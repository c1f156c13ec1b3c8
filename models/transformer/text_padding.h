// Folds a text's padding for cross-attention. Equal rows give equal keys, so two rows can represent all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sparsereel::models {

struct FoldedText {
  at::Tensor rows;  // [B, L', C]
  at::Tensor bias;  // fp32 [B, L'], added to the scores of the keys; undefined if not needed
};

/// Folds text [B, L, C], in which all rows of an entry from its length on are equal. Two of n such rows are kept, with
/// biases b and c so that e^b + e^c = n. This is the weight of n equal keys and values in a softmax. Rows kept only for
/// longer entries get -inf. If less than half of the rows would go, or no lengths are given, all stay.
FoldedText fold_padding(const at::Tensor& text, const std::vector<int64_t>& lengths);

}  // namespace sparsereel::models
