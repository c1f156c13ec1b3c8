// Mean and deviation of each token over all heads, for a norm across heads: a warp a token, which it reads in vectors.
#include "attention/cuda/kernels.h"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

/// Calls body(x) for each element of this lane's share of the token.
template <typename T, typename Body>
__device__ void for_each_element(const MomentRows& p, const T* token, const Body& body) {
  const int size = p.heads * p.head_dim;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) % 32 * kLaneElements; i < size; i += 32 * kLaneElements) {
    float x[kLaneElements];
    unpack(load_packed(token + i / p.head_dim * p.view.head_stride + i % p.head_dim), x);
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) body(x[j]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) moments_kernel(const __grid_constant__ MomentRows p) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (index >= static_cast<int64_t>(p.batch) * p.tokens) return;
  const T* token = static_cast<const T*>(p.view.data) + index / p.tokens * p.view.batch_stride +
                   index % p.tokens * p.view.token_stride;
  const float inverse_size = 1.0F / static_cast<float>(p.heads * p.head_dim);
  float mean = 0, square = 0;
  if (p.centres) {
    float sum = 0;
    for_each_element(p, token, [&](float x) { sum += x; });
    mean = warp_sum(sum) * inverse_size;
  }
  for_each_element(p, token, [&](float x) { square += (x - mean) * (x - mean); });
  square = warp_sum(square);
  if (threadIdx.x % 32 != 0) return;
  p.out[2 * index] = mean;
  p.out[2 * index + 1] = rsqrtf(square * inverse_size + p.eps);
}

}  // namespace

void launch_moments(const MomentRows& rows, Stream stream) {
  const int64_t tokens = static_cast<int64_t>(rows.batch) * rows.tokens;
  const auto blocks = static_cast<unsigned>((tokens + kWarps - 1) / kWarps);
  if (blocks == 0) return;
  rows.element == Element::fp16 ? moments_kernel<__half><<<blocks, kThreads, 0, stream>>>(rows)
                                : moments_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(rows);
}

void launch_moments(const MomentRows& queries, const View& keys, int key_count, float* of_keys, Stream stream) {
  launch_moments(queries, stream);
  MomentRows rows = queries;
  rows.view = keys;
  rows.tokens = key_count;
  rows.out = of_keys;
  launch_moments(rows, stream);
}

void launch_token_moments(const Call& call) {
  if (call.buffers.token_moments == nullptr) return;
  const Problem& p = call.problem;
  const MomentRows queries = {.view = p.q,
                              .element = p.element,
                              .batch = p.batch,
                              .tokens = p.queries,
                              .heads = p.heads,
                              .head_dim = p.head_dim,
                              .centres = p.prologue.norm == Prologue::Norm::layer,
                              .eps = p.prologue.eps,
                              .out = call.buffers.token_moments};
  launch_moments(queries, p.k, p.keys, queries.out + int64_t{2} * p.batch * p.queries, call.stream);
}

}  // namespace sparsereel::attention::cuda
