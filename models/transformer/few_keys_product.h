// Attention to few keys, followed by a linear layer W, with the products in the other order: P (V W) instead of (P V)
// W. P is the softmax of the scores.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/attention.h"
#include "models/layers/linear.h"

namespace sparsereel::models {

/// Returns true if P (V W) takes at most half as many multiplications as (P V) W. It assumes that there are many more
/// queries than keys, so the product V W hardly counts. Always false in fp16, because V W may exceed the range of fp16.
/// Also false for a layer with e4m3 weights if heads * keys is not a multiple of 16, as 8-bit products need. v is [B,
/// L, heads, head_dim].
bool is_less_work(const at::Tensor& v, const Linear& layer);

/// Returns linear(P v, layer), [B, N, out], for the attention weights P that attention::attention_weights() returns.
/// It multiplies each head's part of the layer's weight by the head's values, which gives a weight [out, heads * keys],
/// and multiplies P by that. The product with P is in 8 bits if the layer's weight is. Throws Error if P and v differ
/// in keys or heads.
at::Tensor linear_of_weights(const attention::Result& weights, const at::Tensor& v, const Linear& layer);

}  // namespace sparsereel::models
