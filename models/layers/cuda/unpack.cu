// Unpacks weights from a file's bytes to the run's dtype just before their product. The speed of memory limits this
// kernel. So a thread block first copies blocks of the format to shared memory, 16 bytes per thread. Then each thread
// unpacks eight elements at a time.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda/packed_blocks.h"

namespace sparsereel::models::cuda {
namespace {

// kTile is the number of elements per thread block. It consists of whole blocks of every format.
constexpr int kUnpackThreads = 256, kTile = 4096;

__device__ inline void store_eight(float* to, const float (&x)[kUnpackedAtOnce]) {
  auto* quads = reinterpret_cast<float4*>(to);
  quads[0] = make_float4(x[0], x[1], x[2], x[3]);
  quads[1] = make_float4(x[4], x[5], x[6], x[7]);
}
template <typename T>
__device__ inline void store_eight(T* to, const float (&x)[kUnpackedAtOnce]) {
  attention::cuda::store_packed(to, attention::cuda::pack<T>(x));
}

__device__ inline void add_eight(float (&x)[kUnpackedAtOnce], const float* from) {
  const auto* quads = reinterpret_cast<const float4*>(from);
#pragma unroll
  for (int i = 0; i < kUnpackedAtOnce; i += 4) {
    const float4 quad = quads[i / 4];
    x[i] += quad.x;
    x[i + 1] += quad.y;
    x[i + 2] += quad.z;
    x[i + 3] += quad.w;
  }
}

template <Dtype kDtype, typename T>
__global__ void __launch_bounds__(kUnpackThreads) unpack_kernel(const __grid_constant__ UnpackRows p) {
  using Packing = PackedBlock<kDtype>;
  constexpr int tile_bytes = kTile / Packing::elements * Packing::bytes;
  static_assert(kTile % Packing::elements == 0 && tile_bytes % 16 == 0);
  __shared__ alignas(16) uint8_t tile[tile_bytes];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile, all = p.rows * p.columns;
  const int count = static_cast<int>(min(static_cast<int64_t>(kTile), all - first));
  const int bytes = count / Packing::elements * Packing::bytes;
  const uint8_t* from = static_cast<const uint8_t*>(p.packed) + first / Packing::elements * Packing::bytes;
  for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += kUnpackThreads * 16) {
    if (i + 16 <= bytes) {
      *reinterpret_cast<uint4*>(tile + i) = *reinterpret_cast<const uint4*>(from + i);
    } else {
      for (int j = i; j < bytes; ++j) tile[j] = from[j];
    }
  }
  __syncthreads();
  T* to = static_cast<T*>(p.out) + first;
#pragma unroll
  for (int i = 0; i < kTile; i += kUnpackThreads * kUnpackedAtOnce) {
    const int element = i + static_cast<int>(threadIdx.x) * kUnpackedAtOnce;
    if (element >= count) return;
    float x[kUnpackedAtOnce];
    Packing::at(tile + element / Packing::elements * Packing::bytes, element % Packing::elements, x);
    if (p.scale != nullptr || kHasBlockScale<kDtype>) {
      float scale = p.scale != nullptr ? p.scale[(first + element) / p.columns] : 1.0F;
      if constexpr (kHasBlockScale<kDtype>)
        scale *= Packing::scale_of(tile + element / Packing::elements * Packing::bytes);
#pragma unroll
      for (float& each : x) each *= scale;
    }
    if (p.delta != nullptr) add_eight(x, p.delta + first + element);
    store_eight(to + element, x);
  }
}

template <Dtype kDtype>
void launch(const UnpackRows& p, Stream stream) {
  const auto blocks = static_cast<unsigned>((p.rows * p.columns + kTile - 1) / kTile);
  switch (p.to) {
    case Scalar::fp32:
      return attention::cuda::start(unpack_kernel<kDtype, float>, blocks, kUnpackThreads, 0, stream, p);
    case Scalar::fp16:
      return attention::cuda::start(unpack_kernel<kDtype, __half>, blocks, kUnpackThreads, 0, stream, p);
    case Scalar::bf16:
      return attention::cuda::start(unpack_kernel<kDtype, __nv_bfloat16>, blocks, kUnpackThreads, 0, stream, p);
  }
}

void launch_dtype(const UnpackRows& p, Stream stream) {
  switch (p.from) {
#define SPARSEREEL_CASE(dtype) \
  case Dtype::dtype:           \
    return launch<Dtype::dtype>(p, stream);
    SPARSEREEL_CASE(f32)
    SPARSEREEL_CASE(f16)
    SPARSEREEL_CASE(bf16)
    SPARSEREEL_CASE(i8)
    SPARSEREEL_CASE(f8_e4m3)
    SPARSEREEL_CASE(f8_e5m2)
    SPARSEREEL_CASE(q4_0)
    SPARSEREEL_CASE(q4_1)
    SPARSEREEL_CASE(q5_0)
    SPARSEREEL_CASE(q5_1)
    SPARSEREEL_CASE(q8_0)
    SPARSEREEL_CASE(q2_k)
    SPARSEREEL_CASE(q3_k)
    SPARSEREEL_CASE(q4_k)
    SPARSEREEL_CASE(q5_k)
    SPARSEREEL_CASE(q6_k)
    SPARSEREEL_CASE(iq4_nl)
    SPARSEREEL_CASE(iq4_xs)
    SPARSEREEL_CASE(mxfp8)
    SPARSEREEL_CASE(nvfp4)
    SPARSEREEL_CASE(int4)
    SPARSEREEL_CASE(awq4)
#undef SPARSEREEL_CASE
    default:
      return;
  }
}

}  // namespace

const char* unpack_rows(const UnpackRows& p, Stream stream) {
  if (p.rows == 0) return nullptr;
  return attention::cuda::launched([&] { launch_dtype(p, stream); });
}

}  // namespace sparsereel::models::cuda
