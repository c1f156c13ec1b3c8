// Converts the bits of a half-precision number to a float, on CPUs and GPUs. No torch, C++17.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define SPARSEREEL_BOTH __host__ __device__
#else
#define SPARSEREEL_BOTH
#endif

namespace sparsereel {

/// Returns the value of an IEEE half with these bits.
SPARSEREEL_BOTH inline float float_of_half(uint16_t bits) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(bits));
#else
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  float value = 0;
  const uint32_t wide = sign | (exponent == 31 ? 0xFFU : exponent + 112) << 23 | mantissa << 13;
  std::memcpy(&value, &wide, sizeof value);
  return value;
#endif
}

}  // namespace sparsereel
