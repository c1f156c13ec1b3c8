// Rotates rows and quantizes them to int8 in one pass, with each row in the registers of one thread block.
#include "models/layers/cuda/quantize_int8.h"

#include "attention/cuda/launched.cuh"
#include "attention/cuda/warp.cuh"
#include "models/layers/cuda/gelu.cuh"
#include "models/layers/cuda/int8.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::load_packed;

constexpr int kChunk = 32 * kLaneElements;  // columns that a warp holds if each lane has one pack
constexpr int kMaxWarps = 16;

/// Returns the largest x >= 0 of a block's threads. All threads must call this together, and only once in a kernel.
__device__ float block_max(float x) {
  __shared__ float of_warps[kMaxWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warps = static_cast<int>(blockDim.x) / 32;
  x = attention::cuda::warp_max(x);
  if (lane == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  return attention::cuda::warp_max(lane < warps ? of_warps[lane] : 0);
}

/// Each thread block quantizes one row. Each thread holds kPacks times eight of the row's elements.
template <typename T, int kPacks>
__global__ void __launch_bounds__(32 * kMaxWarps) quantize_int8_kernel(const __grid_constant__ QuantizeRows p) {
  const int64_t row = blockIdx.x;
  const T* from = static_cast<const T*>(p.x) + row * p.channels;
  const auto column = [](int i) { return static_cast<int>(threadIdx.x + i * blockDim.x) * kLaneElements; };
  Packed<T> packed[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    packed[i] = {};
    if (column(i) < p.channels) packed[i] = load_packed(from + column(i));
  }
  float x[kPacks][kLaneElements], most = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    attention::cuda::unpack(p.gelu ? gelu(packed[i]) : packed[i], x[i]);
    if (p.column_scale != nullptr && column(i) < p.channels) {
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) x[i][j] *= p.column_scale[column(i) + j];
    }
    const bool warp_has_columns = column(i) / kChunk * kChunk < p.channels;
    if (p.to.rotation > 0 && warp_has_columns) rotate(x[i], p.to.rotation);
    most = fmaxf(most, largest_of(x[i]));
  }
  store_int8_row(x, block_max(most), p.channels, column, static_cast<uint8_t*>(p.out) + row * p.channels,
                 p.scale + row);
}

template <typename T, int kPacks>
void launch(const QuantizeRows& p, Stream stream) {
  const int chunks = (p.channels + kChunk - 1) / kChunk, warps = (chunks + kPacks - 1) / kPacks;
  attention::cuda::start(quantize_int8_kernel<T, kPacks>, static_cast<unsigned>(p.rows), 32 * warps, 0, stream, p);
}

template <typename T>
void launch_type(const QuantizeRows& p, Stream stream) {
  static_assert(kMaxQuantizeChannels <= 4 * kMaxWarps * kChunk);
  if (p.channels <= 8 * kChunk) return launch<T, 1>(p, stream);
  if (p.channels <= 24 * kChunk) return launch<T, 2>(p, stream);
  launch<T, 4>(p, stream);
}

}  // namespace

const char* quantize_rows_to_int8(const QuantizeRows& p, Stream stream) {
  return attention::cuda::launched([&] {
    if (p.from == Scalar::fp32) return launch_type<float>(p, stream);
    p.from == Scalar::fp16 ? launch_type<__half>(p, stream) : launch_type<__nv_bfloat16>(p, stream);
  });
}

}  // namespace sparsereel::models::cuda
