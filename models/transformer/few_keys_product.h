// Attention to few keys, and the linear layer W behind it, multiplied in the other order: P (V W) instead of (P V) W.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/attention.h"
#include "models/layers/linear.h"

namespace sparsereel::models {

/// Returns true if P (V W) takes at most half as many multiplications as (P V) W. It assumes many more queries than
/// keys, so that the product V W hardly counts. Always false in fp16, because V W may exceed its range. v is [B, L,
/// heads, head_dim].
bool is_less_work(const at::Tensor& v, const Linear& layer);

/// Returns linear(P v, layer), [B, N, out], for the attention weights P that attention::attention_weights() returns.
/// Multiplies each head's part of the layer's weight by the head's values, which gives a weight [out, heads x keys] for
/// P. The product with P is in 8 bits if the layer is. Throws Error if P does not have v's keys and heads.
at::Tensor linear_of_weights(const attention::Result& weights, const at::Tensor& v, const Linear& layer);

}  // namespace sparsereel::models
