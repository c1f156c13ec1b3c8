// RMS norm over a pixel's channels, then SiLU, in one pass. A few lanes of a warp share a pixel.
#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/vae/cuda/launch.h"
#include "models/vae/cuda/of_type.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::kLaneElements;
using attention::cuda::load_packed;
using attention::cuda::pack;
using attention::cuda::Packed;
using attention::cuda::store_packed;
using attention::cuda::unpack;

constexpr int kThreads = 256;
constexpr int kPixelsPerThread = 4;  // a thread loads gamma and bias once for all its pixels
constexpr int kWarp = 32;

/// Computes RmsNormSilu. `lanes` lanes share a pixel. Channels are in groups of eight; lane l has the groups l, l +
/// lanes, l + 2 lanes, .., at most kGroups.
template <typename T, int kGroups>
__global__ void __launch_bounds__(kThreads) rms_norm_silu_kernel(const __grid_constant__ RmsNormSilu p, int lanes) {
  const int groups = p.channels / kLaneElements, lane = static_cast<int>(threadIdx.x) % lanes;
  const int at_once = kThreads / lanes;
  Packed<T> gamma[kGroups], bias[kGroups] = {};
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = lane + i * lanes;
    if (group >= groups) break;
    gamma[i] = load_packed(static_cast<const T*>(p.gamma) + group * kLaneElements);
    if (p.input_bias != nullptr) bias[i] = load_packed(static_cast<const T*>(p.input_bias) + group * kLaneElements);
  }
  const float root = sqrtf(static_cast<float>(p.channels));
  const int64_t first = static_cast<int64_t>(blockIdx.x) * at_once * kPixelsPerThread + threadIdx.x / lanes;
#pragma unroll
  for (int turn = 0; turn < kPixelsPerThread; ++turn) {
    const int64_t pixel = first + static_cast<int64_t>(turn) * at_once;
    const bool inside = pixel < p.pixels;  // lanes outside go on, because all lanes must take part in the sum
    const T* x = static_cast<const T*>(p.x) + pixel * p.channels;
    float value[kGroups][kLaneElements], squares = 0;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int group = lane + i * lanes;
      if (!inside || group >= groups) break;
      float added[kLaneElements];
      unpack(load_packed(x + group * kLaneElements), value[i]);
      unpack(bias[i], added);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) {
        value[i][j] += added[j];
        squares += value[i][j] * value[i][j];
      }
    }
    for (int other = lanes / 2; other > 0; other /= 2) squares += __shfl_xor_sync(0xFFFFFFFFU, squares, other);
    // A comparison with NaN is false, so a NaN norm stays NaN; fmaxf() would drop it.
    const float norm = sqrtf(squares), factor = root / (norm < p.least_norm ? p.least_norm : norm);
    T* out = static_cast<T*>(p.out) + pixel * p.channels;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int group = lane + i * lanes;
      if (!inside || group >= groups) break;
      float scale[kLaneElements];
      unpack(gamma[i], scale);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) {
        const float v = value[i][j] * factor * scale[j];
        value[i][j] = __fdividef(v, 1.0F + __expf(-v));
      }
      store_packed(out + group * kLaneElements, pack<T>(value[i]));
    }
  }
}

template <typename T>
void launch(const RmsNormSilu& p, Stream stream) {
  constexpr int kFew = 4, kMany = kMaxStatisticsChannels / kLaneElements / kWarp;
  const int groups = p.channels / kLaneElements;
  int lanes = 1;
  while (lanes < kWarp && lanes * kFew < groups) lanes *= 2;
  const int64_t pixels_per_block = static_cast<int64_t>(kThreads / lanes) * kPixelsPerThread;
  const auto blocks = static_cast<unsigned>((p.pixels + pixels_per_block - 1) / pixels_per_block);
  if (lanes * kFew >= groups)
    attention::cuda::start(rms_norm_silu_kernel<T, kFew>, blocks, kThreads, 0, stream, p, lanes);
  else
    attention::cuda::start(rms_norm_silu_kernel<T, kMany>, blocks, kThreads, 0, stream, p, lanes);
}

}  // namespace

const char* rms_norm_silu(const RmsNormSilu& p, Stream stream) {
  return attention::cuda::launched(
      [&] { of_type(p.element, launch<float>, launch<__half>, launch<__nv_bfloat16>)(p, stream); });
}

}  // namespace sparsereel::models::cuda
