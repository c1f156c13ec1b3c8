// Copies or converts inputs of a call to scratch memory, into the form that kernels read.
#include "attention/cuda/kernels.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChoices = 64;  // number of heads whose choices one launch stores

/// The choices of heads, passed as an argument of a kernel. With a copy from host memory, the call would have to keep
/// that memory until the copy has run.
struct Choices {
  HeadChoice head[kChoices];
};
static_assert(sizeof(Choices) <= 2048, "the arguments of a kernel may have 4 KB");

__global__ void store_choices(const __grid_constant__ Choices from, int count, HeadChoice* to) {
  const int head = static_cast<int>(threadIdx.x);
  if (head < count) to[head] = from.head[head];
}

void launch_choices(const KernelParams& p, HeadChoice* to, Stream stream) {
  for (int first = 0; first < p.heads; first += kChoices) {
    const int count = p.heads - first < kChoices ? p.heads - first : kChoices;
    Choices some;
    for (int i = 0; i < count; ++i) some.head[i] = p.selection.heads[first + i];
    start(store_choices, 1, kChoices, 0, stream, some, count, to + first);
  }
}

__global__ void __launch_bounds__(kThreads) make_rotary_pairs(const float* cosines, const float* sines, int64_t count,
                                                              int half, bool interleaved, __half2* pairs) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t row = at / half * 2 * half, pair = at % half;
  const int64_t from = row + (interleaved ? 2 * pair : pair);
  pairs[at] = __floats2half2_rn(cosines[from], sines[from]);
}

void launch_rotary_pairs(const KernelParams& p, uint32_t* pairs, Stream stream) {
  const int half = p.head_dim / 2;
  const int64_t count = static_cast<int64_t>(p.prologue.rotary_tokens) * half;
  if (count == 0) return;
  start(make_rotary_pairs, static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream,
        p.prologue.rotary_cos, p.prologue.rotary_sin, count, half, p.prologue.interleaved,
        reinterpret_cast<__half2*>(pairs));
}

}  // namespace

KernelParams launch_inputs(const KernelParams& params, const Buffers& buffers, Stream stream) {
  KernelParams on_device = params;
  if (buffers.choices != nullptr) {
    launch_choices(params, buffers.choices, stream);
    on_device.selection.heads = buffers.choices;
  }
  if (buffers.rotary != nullptr) {
    launch_rotary_pairs(params, buffers.rotary, stream);
    on_device.prologue.rotary_pairs = buffers.rotary;
  }
  return on_device;
}

}  // namespace sparsereel::attention::cuda
