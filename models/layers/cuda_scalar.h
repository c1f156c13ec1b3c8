// The element types of the kernels in layers/cuda.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/cuda_binding.h"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models {

/// Returns x's element type. x must be fp32, fp16 or bf16.
inline cuda::Scalar scalar_of(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat  ? cuda::Scalar::fp32
         : x.scalar_type() == at::kHalf ? cuda::Scalar::fp16
                                        : cuda::Scalar::bf16;
}

}  // namespace sparsereel::models
