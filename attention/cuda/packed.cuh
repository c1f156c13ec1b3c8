// Eight elements that a thread loads and stores at once: one access of 16 bytes for fp16 and bf16, two for fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace sparsereel::attention::cuda {

constexpr int kLaneElements = 8;  // number of consecutive elements of a row that one thread holds

__device__ inline float to_float(__half x) {
  return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

__device__ inline float to_float(float x) {
  return x;
}

__device__ inline void from_float(float x, float& out) {
  out = x;
}
__device__ inline void from_float(float x, __half& out) {
  out = __float2half_rn(x);
}
__device__ inline void from_float(float x, __nv_bfloat16& out) {
  out = __float2bfloat16_rn(x);
}

template <typename T>
struct alignas(16) Packed {
  T element[kLaneElements];
};

/// Loads eight elements; p is aligned to 16 bytes.
template <typename T>
__device__ inline Packed<T> load_packed(const T* p) {
  Packed<T> x;
#pragma unroll
  for (size_t i = 0; i < sizeof(x) / sizeof(uint4); ++i)
    reinterpret_cast<uint4*>(&x)[i] = reinterpret_cast<const uint4*>(p)[i];
  return x;
}

template <typename T>
__device__ inline void store_packed(T* p, const Packed<T>& x) {
#pragma unroll
  for (size_t i = 0; i < sizeof(x) / sizeof(uint4); ++i)
    reinterpret_cast<uint4*>(p)[i] = reinterpret_cast<const uint4*>(&x)[i];
}

template <typename T>
__device__ inline void unpack(const Packed<T>& from, float (&x)[kLaneElements]) {
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] = to_float(from.element[i]);
}

/// Unpacks bf16, which is the upper half of a float, with one instruction per element. The compiler's own code would
/// take two for every second element.
template <>
__device__ inline void unpack(const Packed<__nv_bfloat16>& from, float (&x)[kLaneElements]) {
  const auto* pair = reinterpret_cast<const uint32_t*>(from.element);
#pragma unroll
  for (int i = 0; i < kLaneElements; i += 2) {
    x[i] = __uint_as_float(pair[i / 2] << 16);
    x[i + 1] = __uint_as_float(pair[i / 2] & 0xFFFF0000U);
  }
}

template <typename T>
__device__ inline Packed<T> pack(const float (&x)[kLaneElements]) {
  Packed<T> packed;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) from_float(x[i], packed.element[i]);
  return packed;
}

}  // namespace sparsereel::attention::cuda
