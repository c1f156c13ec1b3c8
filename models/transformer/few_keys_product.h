// Attention to few keys, multiplied in the other order with the layer behind it: P (V W) in place of (P V) W.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/attention.h"
#include "models/layers/linear.h"

namespace sparsereel::models {

/// Returns true if that order takes at most half of the multiplications for many more queries than keys. The product of
/// V and the weight hardly counts then. Always false in fp16, whose range the product may exceed. v is [B, L, heads,
/// head_dim].
bool is_less_work(const at::Tensor& v, const Linear& layer);

/// Returns linear(P v, layer), [B, N, out], for P = attention::attention_weights(). Each head's part of the weight is
/// multiplied by its values, which gives a weight [out, heads x keys] for P. That product is in 8 bits if the layer is.
/// Throws Error if P does not have v's keys and heads.
at::Tensor linear_of_weights(const attention::Result& weights, const at::Tensor& v, const Linear& layer);

}  // namespace sparsereel::models
