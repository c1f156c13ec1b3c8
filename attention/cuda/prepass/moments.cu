// Computes the mean and deviation of each token over all its heads, for a norm across heads. Each warp reads one token,
// 16 bytes per lane at a time.
#include "attention/cuda/kernels.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kStride = 32 * kLaneElements;  // number of elements that a warp loads at once
constexpr int kTogether = 8;                 // number of loads of a lane that are in flight at once

/// Calls body(x) for each element of the token that this lane handles. kPacked: true if the heads of a token are
/// contiguous.
template <bool kPacked, typename T, typename Body>
__device__ void for_each_element(const MomentRows& p, const T* token, const Body& body) {
  const int size = p.heads * p.head_dim;
  for (int first = static_cast<int>(threadIdx.x) % 32 * kLaneElements; first < size; first += kTogether * kStride) {
    Packed<T> packed[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = first + j * kStride;
      if (i < size) packed[j] = load_packed(token + (kPacked ? i : i / p.head_dim * p.in.head_stride + i % p.head_dim));
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (first + j * kStride >= size) break;
      float x[kLaneElements];
      unpack(packed[j], x);
#pragma unroll
      for (int k = 0; k < kLaneElements; ++k) body(x[k]);
    }
  }
}

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kThreads) moments_kernel(const __grid_constant__ MomentRows p) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= static_cast<int64_t>(p.batch) * p.tokens) return;
  const T* token =
      static_cast<const T*>(p.in.data) + index / p.tokens * p.in.batch_stride + index % p.tokens * p.in.token_stride;
  const float inverse_size = 1.0F / static_cast<float>(p.heads * p.head_dim);
  float mean = 0, square = 0;
  if (p.centers) {
    float sum = 0;
    for_each_element<kPacked>(p, token, [&](float x) { sum += x; });
    mean = warp_sum(sum) * inverse_size;
  }
  for_each_element<kPacked>(p, token, [&](float x) { square += (x - mean) * (x - mean); });
  square = warp_sum(square);
  if (threadIdx.x % 32 != 0) return;
  p.out[2 * index] = mean;
  p.out[2 * index + 1] = rsqrtf(square * inverse_size + p.eps);
}

template <typename T>
void launch(const MomentRows& rows, unsigned blocks, Stream stream) {
  rows.in.head_stride == rows.head_dim ? start(moments_kernel<T, true>, blocks, kThreads, 0, stream, rows)
                                       : start(moments_kernel<T, false>, blocks, kThreads, 0, stream, rows);
}

}  // namespace

void launch_moments(const MomentRows& rows, Stream stream) {
  const int64_t tokens = static_cast<int64_t>(rows.batch) * rows.tokens;
  const auto blocks = static_cast<unsigned>((tokens + kWarps - 1) / kWarps);
  if (blocks == 0) return;
  rows.element == Element::fp16 ? launch<__half>(rows, blocks, stream) : launch<__nv_bfloat16>(rows, blocks, stream);
}

const char* find_moments(const MomentRows& rows, Stream stream) {
  return launched([&] { launch_moments(rows, stream); });
}

void launch_moments(const KernelParams& p, float* moments, Stream stream) {
  if (!p.prologue.normalizes_across_heads()) return;
  float* of_keys = moments + int64_t{2} * p.batch * p.queries;
  if (p.prologue.q_moments != nullptr) {
    const auto bytes = [&](int tokens) { return sizeof(float) * 2 * p.batch * tokens; };
    note(cudaMemcpyAsync(moments, p.prologue.q_moments, bytes(p.queries), cudaMemcpyDeviceToDevice, stream));
    note(cudaMemcpyAsync(of_keys, p.prologue.k_moments, bytes(p.keys), cudaMemcpyDeviceToDevice, stream));
    return;
  }
  const bool centers = p.prologue.norm == Prologue::Norm::layer;
  launch_moments({queries_of(p), centers, p.prologue.eps, moments}, stream);
  launch_moments({keys_of(p), centers, p.prologue.eps, of_keys}, stream);
}

}  // namespace sparsereel::attention::cuda
