// Shortens a text's padding for cross-attention. Padding rows are equal and give equal keys and values, so two of them
// with a bias can stand for all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sparsereel::models {

struct FoldedText {
  at::Tensor rows;  // [B, L', C]
  at::Tensor bias;  // fp32 [B, L'], added to the scores of the keys; undefined if no row was dropped
};

/// Folds the padding of text [B, L, C]. lengths[i] is the number of text rows of entry i; its rows from there on must
/// be equal. Of n equal rows, it keeps two, with biases b and c such that e^b + e^c = n: in a softmax, the two then
/// weigh as much as n equal keys. If entries differ in length, superfluous rows of the shorter ones get the bias -inf.
/// If less than half of the rows can be dropped, or if lengths is empty, all rows stay.
FoldedText fold_padding(const at::Tensor& text, const std::vector<int64_t>& lengths);

}  // namespace sparsereel::models
