// Quantizes rows to e4m3 in one pass, with the row in registers. A warp takes a short row, a thread block takes a long
// one.
#include "attention/cuda/launched.cuh"
#include "models/layers/cuda/e4m3.cuh"
#include "models/layers/cuda/gelu.cuh"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda/quantize_int8.h"
#include "models/layers/cuda/team.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::load_packed;

/// Quantizes rows. A team of kTeam warps takes a row. Each thread holds kPacks times eight of the row's elements.
template <typename T, int kTeam, int kPacks>
__global__ void __launch_bounds__(kThreads) quantize_rows_kernel(const __grid_constant__ QuantizeRows p) {
  constexpr int row_threads = 32 * kTeam;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kWarps / kTeam) + Team<kTeam>::index();
  if (row >= p.rows) return;  // all warps of a row return together, so none waits for another
  const int first = static_cast<int>(threadIdx.x) % row_threads * kLaneElements;
  const auto column = [&](int i) { return first + i * row_threads * kLaneElements; };
  const T* from = static_cast<const T*>(p.x) + row * p.channels;
  Packed<T> x[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    x[i] = {};
    if (column(i) < p.channels) x[i] = load_packed(from + column(i));
  }
  float most = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (p.gelu && column(i) < p.channels) x[i] = gelu(x[i]);
    most = fmaxf(most, largest_of(x[i]));
  }
  store_e4m3_row(x, Team<kTeam>().max(most), p.channels, column, static_cast<uint8_t*>(p.out) + row * p.channels,
                 p.scale + row);
}

template <typename T, int kTeam, int kPacks>
void launch(const QuantizeRows& p, Stream stream) {
  constexpr int rows = kWarps / kTeam;
  attention::cuda::start(quantize_rows_kernel<T, kTeam, kPacks>, static_cast<unsigned>((p.rows + rows - 1) / rows),
                         kThreads, 0, stream, p);
}

template <typename T>
void launch_type(const QuantizeRows& p, Stream stream) {
  for_row_shape(p.channels, [&](auto team, auto packs) { launch<T, team, packs>(p, stream); });
}

}  // namespace

const char* quantize_rows(const QuantizeRows& p, Stream stream) {
  if (p.rows == 0) return nullptr;
  if (p.to.int8) return quantize_rows_to_int8(p, stream);
  return attention::cuda::launched(
      [&] { p.from == Scalar::fp16 ? launch_type<__half>(p, stream) : launch_type<__nv_bfloat16>(p, stream); });
}

}  // namespace sparsereel::models::cuda
