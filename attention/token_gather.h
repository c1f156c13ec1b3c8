// The token order at the entry of a transformer, and its inverse at the exit.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::attention {

/// x[:, index], a copy: x [B, N, C] of any dtype, index int64 [M] on the device of x.
at::Tensor gather_tokens(const at::Tensor& x, const at::Tensor& index);

}  // namespace sparsereel::attention
