// Implements mode full on any device by torch's scaled_dot_product_attention, with every mask that the context can
// express. Few keys on a GPU use cuda_call.h instead. On a GPU a key_bias is rounded to the dtype of the keys.
#pragma once

#include "attention/attention.h"

namespace sparsereel::attention {

/// out is [B, Nq, H, D] and lse, if asked for, [B, H, Nq]. sdpa() takes q, k and v of attend() after the prologue, and
/// does not copy them for their layout. `scale` is the context's scale, or the default.
struct SdpaResult {
  at::Tensor out;
  at::Tensor lse;
};
SdpaResult sdpa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale);

}  // namespace sparsereel::attention
