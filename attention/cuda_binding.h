// Helpers for code of attention/ and models/ that runs CUDA kernels on tensors. They need no header or library of CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <string>

#include "attention/cuda/launch.h"
#include "hilbert/error.h"

namespace sparsereel::attention {

inline constexpr int64_t kVector = 8;  // 16-bit elements that a thread loads at once: 16 bytes

/// Returns torch's current stream of a GPU.
inline cuda::Stream current_stream(at::Device device) {
  return static_cast<cuda::Stream>(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device).native_handle());
}

/// Throws Error if `error`, the message from CUDA, is not null.
inline void check_launch(const char* error, const std::string& kernel) {
  if (error == nullptr) return;
  throw run_failure("the " + kernel + " kernel did not start: " + error,
                    "report this with the output of 'sparsereel doctor'");
}

inline bool is_half_on_cuda(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16);
}

inline bool on_16_bytes(const at::Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

inline cuda::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? cuda::Element::fp16 : cuda::Element::bf16;
}

}  // namespace sparsereel::attention
