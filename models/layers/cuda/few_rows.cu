// Products of a few rows with the weights of several layers. Each warp computes kOutputs outputs and reads their
// weights once, at memory speed.
#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/warp.cuh"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::kLaneElements;
using attention::cuda::load_packed;
using attention::cuda::Packed;
using attention::cuda::to_float;
using attention::cuda::unpack;
using attention::cuda::warp_sum;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kOutputs = 4;  // number of outputs per warp; their weights are loaded together

template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads) few_rows_kernel(const __grid_constant__ FewRows p) {
  const Projection& to = p.projections[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) * kOutputs;
  if (first >= to.outputs) return;
  const T* x = static_cast<const T*>(p.x);
  const T* weight = static_cast<const T*>(to.weight);
  const T* bias = static_cast<const T*>(to.bias);
  float sum[kRows][kOutputs] = {};
  for (int column = lane * kLaneElements; column < p.inputs; column += 32 * kLaneElements) {
    Packed<T> packed[kOutputs];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const int output = min(first + o, to.outputs - 1);
      packed[o] = load_packed(weight + static_cast<int64_t>(output) * p.inputs + column);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= p.rows) break;
      float in[kLaneElements];
      unpack(load_packed(x + static_cast<int64_t>(r) * p.inputs + column), in);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
        float w[kLaneElements];
        unpack(packed[o], w);
#pragma unroll
        for (int i = 0; i < kLaneElements; ++i) sum[r][o] += in[i] * w[i];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float total = warp_sum(sum[r][o]);
      const int output = first + o;
      if (lane != 0 || r >= p.rows || output >= to.outputs) continue;
      to.out[static_cast<int64_t>(r) * to.outputs + output] = total + (bias == nullptr ? 0.0F : to_float(bias[output]));
    }
  }
}

template <typename T>
auto* kernel_for(int rows) {
  return rows == 1 ? few_rows_kernel<T, 1> : rows == 2 ? few_rows_kernel<T, 2> : few_rows_kernel<T, kMaxFewRows>;
}

}  // namespace

const char* project_few_rows(const FewRows& p, Stream stream) {
  if (p.rows == 0 || p.count == 0) return nullptr;
  int outputs = 0;
  for (int i = 0; i < p.count; ++i) outputs = outputs < p.projections[i].outputs ? p.projections[i].outputs : outputs;
  constexpr int each = kWarps * kOutputs;
  const dim3 grid(static_cast<unsigned>((outputs + each - 1) / each), static_cast<unsigned>(p.count));
  auto* kernel = p.element == Element::fp16 ? kernel_for<__half>(p.rows) : kernel_for<__nv_bfloat16>(p.rows);
  return attention::cuda::launched([&] { attention::cuda::start(kernel, grid, kThreads, 0, stream, p); });
}

}  // namespace sparsereel::models::cuda
