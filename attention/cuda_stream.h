// The stream that torch works on, without a header or library of CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

struct CUstream_st;

namespace sparsereel::attention {

inline CUstream_st* current_stream(c10::Device device) {
  return static_cast<CUstream_st*>(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device).native_handle());
}

}  // namespace sparsereel::attention
