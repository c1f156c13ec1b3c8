// Brings tensors into the form that the CUDA attention kernels load.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "attention/attention.h"
#include "attention/cuda_binding.h"

namespace sparsereel::attention {

/// Returns x if the kernels can load it: its rows are aligned to 16 bytes, and consecutive tokens are less than 2^31
/// elements apart. Otherwise returns a contiguous copy, whose head_dim is padded with zeros to a multiple of kVector.
inline at::Tensor loadable(const at::Tensor& x) {
  const bool aligned = on_16_bytes(x) && x.stride(0) % kVector == 0 && x.stride(1) % kVector == 0 &&
                       x.stride(2) % kVector == 0 && x.stride(1) < int64_t{1} << 31;
  const int64_t missing = (kVector - x.size(3) % kVector) % kVector;
  if (missing > 0) return at::constant_pad_nd(x, {0, missing});
  return aligned ? x : x.clone(at::MemoryFormat::Contiguous);
}

inline float* pointer_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

/// Converts tensors to the form that kernels read, and keeps the results alive until the kernels are enqueued.
class Kept {
 public:
  const void* pairs(const Prologue& prologue) {
    if (!prologue.rotary_cos.defined()) return nullptr;
    tensors_.push_back(prologue.rotary_pairs.defined() ? prologue.rotary_pairs : rotary_pairs(prologue));
    return tensors_.back().const_data_ptr();
  }

  const float* pointer(const at::Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    const at::Tensor floats = tensor.to(at::kFloat).contiguous();
    tensors_.push_back(on_16_bytes(floats) ? floats : floats.clone());
    return tensors_.back().const_data_ptr<float>();
  }

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace sparsereel::attention
