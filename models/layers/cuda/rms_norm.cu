// Adds a normalized, gated update to a residual stream, and computes the RMS norm of the sum, in one pass over memory.
// A thread block of four warps keeps a row and its update in registers.
#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/layers/cuda/e4m3.cuh"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda/team.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::load_packed;
using attention::cuda::pack;
using attention::cuda::store_packed;
using attention::cuda::unpack;

constexpr int kRowWarps = 4, kRowThreads = 32 * kRowWarps;
using RowTeam = Team<kRowWarps, kRowWarps>;
constexpr int kPassElements = kRowThreads * kLaneElements;  // elements of a row that the block loads at once

/// This thread's elements of a row: kPacks packs of eight.
template <typename T, int kPacks>
struct RowShare {
  Packed<T> x[kPacks];

  static __device__ int column(int i) {
    return static_cast<int>(threadIdx.x) % kRowThreads * kLaneElements + i * kPassElements;
  }

  __device__ void load(const T* from, int channels) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      x[i] = {};
      if (column(i) < channels) x[i] = load_packed(from + column(i));
    }
  }

  /// Returns 1 / sqrt(mean(x^2) + eps) over the whole row.
  __device__ float inverse(int channels, float eps, RowTeam& team) const {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      float values[kLaneElements];
      unpack(x[i], values);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) squares += values[j] * values[j];
    }
    return rsqrtf(team.sum(squares) / static_cast<float>(channels) + eps);
  }
};

__device__ inline void load_vector(const float* from, float (&values)[kLaneElements]) {
  const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
  values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
  values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
}

template <typename T>
__device__ T* row_of(const Rows& rows, int batch, int token) {
  return static_cast<T*>(rows.data) + batch * rows.batch_stride + token * rows.row_stride;
}

template <typename T, int kPacks>
__global__ void __launch_bounds__(kRowThreads) rms_norm_kernel(const __grid_constant__ RmsNormModulate p) {
  const int row = static_cast<int>(blockIdx.x), batch = row / p.tokens, token = row % p.tokens;
  RowTeam team;
  T* residual = row_of<T>(p.residual, batch, token);
  RowShare<T, kPacks> sum;
  sum.load(residual, p.channels);
  if (p.update.data != nullptr) {
    RowShare<T, kPacks> update;
    update.load(row_of<T>(p.update, batch, token), p.channels);
    const float inverse = update.inverse(p.channels, p.update_eps, team);
    const float* gate = p.gate.data + batch * p.gate.batch_stride;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int column = sum.column(i);
      if (column >= p.channels) continue;
      float x[kLaneElements], y[kLaneElements], factor[kLaneElements];
      unpack(sum.x[i], x);
      unpack(update.x[i], y);
      load_vector(gate + column, factor);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) x[j] += y[j] * inverse * factor[j];
      sum.x[i] = pack<T>(x);
      store_packed(residual + column, sum.x[i]);
    }
  }
  if (p.out.data == nullptr) return;
  const float inverse = sum.inverse(p.channels, p.eps, team);
  const float* factors = p.factor.data + batch * p.factor.batch_stride;
  float most = 0;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int column = sum.column(i);
    if (column >= p.channels) continue;
    float x[kLaneElements], factor[kLaneElements];
    unpack(sum.x[i], x);
    load_vector(factors + column, factor);
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) x[j] *= inverse * factor[j];
    sum.x[i] = pack<T>(x);
    if (p.out_scale == nullptr)
      store_packed(row_of<T>(p.out, batch, token) + column, sum.x[i]);
    else
      most = fmaxf(most, largest_of(sum.x[i]));
  }
  if (p.out_scale == nullptr) return;
  store_e4m3_row(
      sum.x, team.max(most), p.channels, [&](int i) { return sum.column(i); }, row_of<uint8_t>(p.out, batch, token),
      p.out_scale + row);
}

template <typename T, int kPacks>
void launch(const RmsNormModulate& p, Stream stream) {
  attention::cuda::start(rms_norm_kernel<T, kPacks>, static_cast<unsigned>(p.batch * p.tokens), kRowThreads, 0, stream,
                         p);
}

template <typename T>
void launch_type(const RmsNormModulate& p, Stream stream) {
  const int packs = (p.channels + kPassElements - 1) / kPassElements;
  if (packs <= 1) return launch<T, 1>(p, stream);
  if (packs <= 2) return launch<T, 2>(p, stream);
  if (packs <= 3) return launch<T, 3>(p, stream);
  return launch<T, (kMaxNormChannels + kPassElements - 1) / kPassElements>(p, stream);
}

}  // namespace

const char* rms_norm_modulate(const RmsNormModulate& p, Stream stream) {
  if (p.batch == 0 || p.tokens == 0) return nullptr;
  return attention::cuda::launched(
      [&] { p.element == Element::fp16 ? launch_type<__half>(p, stream) : launch_type<__nv_bfloat16>(p, stream); });
}

}  // namespace sparsereel::models::cuda
