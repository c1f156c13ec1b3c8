// The norm of q alone, or of k.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::attention {

/// What a prologue has for q alone, or for k.
struct RowNorm {
  at::Tensor weight, bias, text_weight, moments;
};

}  // namespace sparsereel::attention
