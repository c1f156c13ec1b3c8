// Selects one of three instantiations of a kernel by the element type.
#pragma once

#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {

template <typename Function>
Function* of_type(Scalar element, Function* fp32, Function* fp16, Function* bf16) {
  switch (element) {
    case Scalar::fp32:
      return fp32;
    case Scalar::fp16:
      return fp16;
    case Scalar::bf16:
      break;
  }
  return bf16;
}

}  // namespace sparsereel::models::cuda
