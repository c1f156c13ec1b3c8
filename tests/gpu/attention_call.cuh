// Calls the attention kernels from programs without torch: device memory, random inputs and parameters of calls.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "attention/cuda/launch.h"

namespace sparsereel::attention::cuda {

inline void check(const char* failure) {
  if (failure == nullptr) return;
  std::fprintf(stderr, "%s\n", failure);
  std::exit(1);
}
inline void check(cudaError_t status) {
  check(status == cudaSuccess ? nullptr : cudaGetErrorString(status));
}

/// Memory on the device, uninitialized or with a copy of values from the host.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(int64_t size) : size_(size) { check(cudaMalloc(&data_, bytes())); }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(static_cast<int64_t>(values.size())) {
    check(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }
  T* get() const { return data_; }
  int64_t size() const { return size_; }
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }

 private:
  int64_t size_;
  T* data_ = nullptr;
};

/// The shape [batch, tokens, heads, head_dim] of q, k and v in self-attention.
struct Shape {
  int batch, heads, tokens, head_dim;

  int64_t row() const { return int64_t{heads} * head_dim; }
  int64_t size() const { return batch * tokens * row(); }
};

__device__ inline uint64_t hash(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

__device__ inline float normal(uint64_t seed) {
  const uint64_t bits = hash(seed);
  const float u = (static_cast<float>(bits >> 40) + 0.5F) * 0x1p-24F;
  return sqrtf(-2 * logf(u)) * cospif(static_cast<float>(bits & 0xFFFFFF) * 0x1p-23F);
}

static __global__ void fill_with_normals(uint16_t* to, int64_t size, int64_t row, float gain, uint64_t seed) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += threads) {
    const int64_t block = i / row / 64, channel = i % row;
    const float own = hash(seed ^ block) % 2 == 0 ? normal(hash(~seed) + block * row + channel) : 0.0F;
    const float x = (normal(hash(seed) + i) + own) * gain;
    to[i] = static_cast<uint16_t>(__float_as_uint(x) >> 16);
  }
}

/// Fills `to` with normally distributed bf16 numbers times `gain`. Read as fp16, they are finite too. In half of the
/// blocks of 64 tokens, a mean is added that differs by block, so that the tokens of these blocks are similar to each
/// other.
inline void fill_with_normals(const OnDevice<uint16_t>& to, const Shape& shape, uint64_t seed, float gain = 1) {
  fill_with_normals<<<1024, 256>>>(to.get(), to.size(), shape.row(), gain, seed);
  check(cudaGetLastError());
}

inline KernelParams params_of(const Shape& shape, const OnDevice<uint16_t>& q, const OnDevice<uint16_t>& k,
                              const OnDevice<uint16_t>& v, const OnDevice<uint16_t>& out) {
  KernelParams p;
  p.element = Element::bf16;
  p.batch = shape.batch;
  p.heads = shape.heads;
  p.queries = p.keys = shape.tokens;
  p.head_dim = shape.head_dim;
  p.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  const auto view = [&](const OnDevice<uint16_t>& tensor) {
    return View{tensor.get(), shape.tokens * shape.row(), shape.row(), shape.head_dim};
  };
  p.q = view(q);
  p.k = view(k);
  p.v = view(v);
  p.out = view(out);
  return p;
}

inline void predict(KernelParams& p) {
  p.selection.kind = Selection::Kind::predict;
  p.selection.rows = 192;
  p.selection.similarity = true;
  p.selection.all = {0.3, HeadChoice::Kind::topk, 1, 0.1F, 50};
}

inline std::shared_ptr<const SideStreams> own_side_streams() {
  const char* failure = nullptr;
  std::shared_ptr<const SideStreams> side = make_side_streams(failure);
  check(failure);
  return side;
}

inline void ignore_similarity(KernelParams& p) {
  p.selection.similarity = false;
  p.selection.all.similarity = -1;
}

inline void keep_means(KernelParams& p) {
  p.selection.means = p.selection.by_error = p.selection.any_topk = true;
}

}  // namespace sparsereel::attention::cuda
