// Implements mode full on any device by torch's scaled_dot_product_attention, with every mask that the context can
// express. On a GPU, calls with few keys use cuda_call.h instead. On a GPU a key_bias is rounded to the dtype of k.
#pragma once

#include "attention/attention.h"

namespace sparsereel::attention {

/// The result of sdpa(): out is [B, Nq, H, D]; lse is [B, H, Nq] if the context asks for it. sdpa() takes the q, k and
/// v of attend(), after the prologue and with any strides. scale: Context::scale, or its default if that is unset.
struct SdpaResult {
  at::Tensor out;
  at::Tensor lse;
};
SdpaResult sdpa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale);

}  // namespace sparsereel::attention
