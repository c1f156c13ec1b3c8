// Brings the tokens of a transformer's input into the token order, and the tokens of its output back into the native
// order.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::attention {

/// Returns x[:, index] as a copy. x is [B, N, C] of any dtype; index is int64 [M] on the device of x.
at::Tensor gather_tokens(const at::Tensor& x, const at::Tensor& index);

}  // namespace sparsereel::attention
