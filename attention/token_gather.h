// Applies the token order at the entry of a transformer, and its inverse at the exit.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::attention {

/// Returns x[:, index] as a copy. x is [B, N, C] of any dtype; index is int64 [M] on the device of x.
at::Tensor gather_tokens(const at::Tensor& x, const at::Tensor& index);

}  // namespace sparsereel::attention
