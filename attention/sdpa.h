// Mode full, but for few keys on a GPU (cuda_call.h): torch's scaled_dot_product_attention on any device, with every
// mask that the context can express. On a GPU it rounds a key_bias to the dtype of the keys.
#pragma once

#include "attention/attention.h"

namespace sparsereel::attention {

/// out [B, Nq, H, D] and, if asked, lse [B, H, Nq]. q, k, v: as in attend(), after the prologue; no copy for their
/// layout. scale: the context's or the default.
struct SdpaResult {
  at::Tensor out;
  at::Tensor lse;
};
SdpaResult sdpa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale);

}  // namespace sparsereel::attention
