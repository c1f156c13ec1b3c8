// The gated activation of a feed-forward layer in one pass. A warp takes a short row, a thread block takes a long one.
#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/launched.cuh"
#include "models/layers/cuda/e4m3.cuh"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda/team.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::fast_exp2;
using attention::cuda::fast_inverse;
using attention::cuda::load_packed;
using attention::cuda::pack;
using attention::cuda::store_packed;
using attention::cuda::unpack;

/// Returns a * silu(b) for a = value and b = gate, where silu(b) = b / (1 + exp(-b)).
template <typename T>
__device__ Packed<T> gated(const Packed<T>& value, const Packed<T>& gate) {
  constexpr float kLog2e = 1.4426950408889634F;
  float a[kLaneElements], b[kLaneElements];
  unpack(value, a);
  unpack(gate, b);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) a[i] *= b[i] * fast_inverse(1 + fast_exp2(-kLog2e * b[i]));
  return pack<T>(a);
}

/// Computes gated linear units. A team of kTeam warps takes a row. Each thread holds kPacks times eight of the row's
/// elements.
template <typename T, int kTeam, int kPacks>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(const __grid_constant__ SwiGlu p) {
  constexpr int row_threads = 32 * kTeam;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kWarps / kTeam) + Team<kTeam>::index();
  if (row >= p.rows) return;  // all warps of a row return together, so none waits for another
  const int first = static_cast<int>(threadIdx.x) % row_threads * kLaneElements;
  const auto column = [&](int i) { return first + i * row_threads * kLaneElements; };
  const T* from = static_cast<const T*>(p.x) + row * 2 * p.channels;
  Packed<T> x[kPacks], gates[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    x[i] = gates[i] = {};
    if (column(i) >= p.channels) continue;
    x[i] = load_packed(from + column(i));
    gates[i] = load_packed(from + p.channels + column(i));
  }
  float most = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    x[i] = gated(x[i], gates[i]);
    if (p.scale != nullptr) {
      most = fmaxf(most, largest_of(x[i]));
    } else if (column(i) < p.channels) {
      store_packed(static_cast<T*>(p.out) + row * p.channels + column(i), x[i]);
    }
  }
  if (p.scale == nullptr) return;
  store_e4m3_row(x, Team<kTeam>().max(most), p.channels, column, static_cast<uint8_t*>(p.out) + row * p.channels,
                 p.scale + row);
}

template <typename T>
void launch_type(const SwiGlu& p, Stream stream) {
  for_row_shape(p.channels, [&](auto team, auto packs) {
    constexpr int rows = kWarps / team;
    attention::cuda::start(swiglu_kernel<T, team, packs>, static_cast<unsigned>((p.rows + rows - 1) / rows), kThreads,
                           0, stream, p);
  });
}

}  // namespace

const char* swiglu(const SwiGlu& p, Stream stream) {
  if (p.rows == 0) return nullptr;
  return attention::cuda::launched(
      [&] { p.element == Element::fp16 ? launch_type<__half>(p, stream) : launch_type<__nv_bfloat16>(p, stream); });
}

}  // namespace sparsereel::models::cuda
