// Attention to few keys and the layer behind it with their products in the other order: P (V W) in place of (P V) W.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/attention.h"
#include "models/layers/linear.h"

namespace sparsereel::models {

/// Whether that takes half of the multiplications, or less, for many more queries than keys: then the product of V with
/// the layer's weight hardly counts. Not in fp16, whose range it may leave. v [B, L, heads, head_dim].
bool is_less_work(const at::Tensor& v, const Linear& layer);

/// linear(P v, layer) [B, N, out] of P = attention::attention_weights(): each head's rows of the layer's weight times
/// its values give a weight [out, heads x keys] that P itself is multiplied with, in 8 bits where the layer is. Throws
/// Error where P is not of v's keys and heads.
at::Tensor linear_of_weights(const attention::Result& weights, const at::Tensor& v, const Linear& layer);

}  // namespace sparsereel::models
