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

/// Folds text [B, L, C], in which all rows of an entry from its length on are equal. Of n equal rows, two are kept,
/// with biases b and c so that e^b + e^c = n, which is the weight of n equal keys and values in a softmax. Rows that
/// only longer entries need get the bias -inf. If less than half of the rows could be dropped, or no lengths are given,
/// all rows stay.
FoldedText fold_padding(const at::Tensor& text, const std::vector<int64_t>& lengths);

}  // namespace sparsereel::models
