// Padding of a text that cross-attention sees: rows that are all alike give keys that are all alike, so two stand for
// them all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sparsereel::models {

struct FoldedText {
  at::Tensor rows;  // [B, L', C]
  at::Tensor bias;  // fp32 [B, L'], added to the scores of their keys; undefined: none
};

/// text [B, L, C], each entry of which ends in equal rows, as many as it has. Of n such rows two are kept, with biases
/// b and c so that e^b + e^c = n, which is what n equal keys and values add up to in a softmax; rows that are kept for
/// longer texts alone get -inf. Where less than half of the rows would go, all stay. lengths: the rows before those;
/// empty: they are compared, and a GPU is waited for.
FoldedText fold_padding(const at::Tensor& text, const std::vector<int64_t>& lengths = {});

}  // namespace sparsereel::models
