// Adds gate * update to the residual stream where no norm follows that could include the addition.
#include <algorithm>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::kLaneElements;
using attention::cuda::load_packed;
using attention::cuda::pack;
using attention::cuda::store_packed;
using attention::cuda::unpack;

constexpr int kThreads = 256, kRowsPerBlock = 8;

template <typename T>
__global__ void __launch_bounds__(kThreads) add_gated_kernel(const __grid_constant__ AddGated p) {
  const int batch = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * kRowsPerBlock;
  const int rows = min(kRowsPerBlock, p.tokens - first), columns = p.channels / kLaneElements;
  T* residual = static_cast<T*>(p.residual.data) + batch * p.residual.batch_stride;
  const T* update = static_cast<const T*>(p.update.data) + batch * p.update.batch_stride;
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * columns; i += kThreads) {
    const int row = first + i / columns, column = i % columns * kLaneElements;
    const Vectors& gates = row < p.video_tokens ? p.gate.video : p.gate.text;
    const int64_t entry = p.entry.data == nullptr ? batch : p.entry.data[static_cast<int64_t>(batch) * p.tokens + row];
    const float* gate = gates.data + entry * gates.batch_stride + column;
    T* to = residual + row * p.residual.row_stride + column;
    float x[kLaneElements], y[kLaneElements];
    unpack(load_packed(to), x);
    unpack(load_packed(update + row * p.update.row_stride + column), y);
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) x[j] += gate[j] * y[j];
    store_packed(to, pack<T>(x));
  }
}

}  // namespace

const char* add_gated(const AddGated& p, Stream stream) {
  if (p.batch == 0 || p.tokens == 0) return nullptr;
  const dim3 grid(static_cast<unsigned>((p.tokens + kRowsPerBlock - 1) / kRowsPerBlock),
                  static_cast<unsigned>(p.batch));
  const auto kernel = p.element == Element::fp16 ? add_gated_kernel<__half> : add_gated_kernel<__nv_bfloat16>;
  return attention::cuda::launched([&] { attention::cuda::start(kernel, grid, kThreads, 0, stream, p); });
}

}  // namespace sparsereel::models::cuda
