// Lets the CPU code, which does not know torch, work on tensors: makes views of strided fp32 tensors, and runs loops in
// torch's threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "attention/cpu/kernel_params.h"

namespace sparsereel::attention {

inline cpu::View<const float> const_view(const at::Tensor& t) {
  return {.data = t.const_data_ptr<float>(),
          .batch_stride = t.stride(0),
          .token_stride = t.stride(1),
          .head_stride = t.stride(2)};
}

inline cpu::View<float> mutable_view(const at::Tensor& t) {
  return {.data = t.mutable_data_ptr<float>(),
          .batch_stride = t.stride(0),
          .token_stride = t.stride(1),
          .head_stride = t.stride(2)};
}

/// Runs the body in libtorch's thread pool. A second pool would compete with it for the cores.
inline void parallel_for(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  at::parallel_for(0, count, 1, body);
}

}  // namespace sparsereel::attention
