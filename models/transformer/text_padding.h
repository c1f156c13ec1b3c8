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

/// text [B, L, C], in each entry of which all rows from its length on are equal. Of n such rows two are kept, with
/// biases b and c so that e^b + e^c = n, which is what n equal keys and values add up to in a softmax; rows that are
/// kept for longer texts alone get -inf. Where less than half of the rows would go, or no lengths are given, all stay.
FoldedText fold_padding(const at::Tensor& text, const std::vector<int64_t>& lengths);

}  // namespace sparsereel::models
