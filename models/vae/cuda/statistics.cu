// Means and variances of channel groups over all pixels of a frame. First each thread block writes partial sums, then
// one block per group adds them.
#include <algorithm>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/vae/cuda/launch.h"
#include "models/vae/cuda/of_type.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::kLaneElements;
using attention::cuda::load_packed;
using attention::cuda::to_float;
using attention::cuda::unpack;

constexpr int kThreads = 256;
constexpr int kTogether = 4;  // pixels that a thread loads before it uses the first

template <typename T>
__device__ const T* frame_of(const GroupStatistics& p) {
  return static_cast<const T*>(p.x) + static_cast<int64_t>(blockIdx.y) * p.pixels * p.channels;
}

/// Returns the value that is subtracted from channel c, so that the variance does not lose precision by cancellation.
/// It is the channel's value at the frame's first pixel.
template <typename T>
__device__ float origin_of(const GroupStatistics& p, int c) {
  return to_float(frame_of<T>(p)[c]);
}

/// Returns this frame's partial sums: [blocks][2][channels].
__device__ float* partials_of(const GroupStatistics& p, int blocks) {
  return p.partials + static_cast<int64_t>(blockIdx.y) * blocks * 2 * p.channels;
}

/// Sums x - origin and its square over this block's pixels of a frame. The grid is (blocks, frames). A thread sums
/// eight channels of every `stride`-th pixel. The threads that remain after the last whole pixel do nothing.
template <typename T>
__global__ void __launch_bounds__(kThreads, 4) partial_sums(const __grid_constant__ GroupStatistics p) {
  extern __shared__ float shared[];  // [2][pixels at once][channels]
  const int columns = p.channels / kLaneElements, at_once = kThreads / columns;
  const int column = static_cast<int>(threadIdx.x) % columns, place = static_cast<int>(threadIdx.x) / columns;
  float sum[kLaneElements] = {}, squares[kLaneElements] = {}, origin[kLaneElements];
  const T* x = frame_of<T>(p) + column * kLaneElements;
  unpack(load_packed(x), origin);
  if (place < at_once) {
    const int64_t stride = static_cast<int64_t>(gridDim.x) * at_once;
#pragma unroll kTogether
    for (int64_t pixel = static_cast<int64_t>(blockIdx.x) * at_once + place; pixel < p.pixels; pixel += stride) {
      float value[kLaneElements];
      unpack(load_packed(x + pixel * p.channels), value);
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) {
        const float difference = value[i] - origin[i];
        sum[i] += difference;
        squares[i] += difference * difference;
      }
    }
    float* mine = shared + place * p.channels + column * kLaneElements;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      mine[i] = sum[i];
      mine[at_once * p.channels + i] = squares[i];
    }
  }
  __syncthreads();
  float* out = partials_of(p, static_cast<int>(gridDim.x)) + static_cast<int64_t>(blockIdx.x) * 2 * p.channels;
  for (int i = threadIdx.x; i < 2 * p.channels; i += kThreads) {
    const float* from = shared + i / p.channels * at_once * p.channels + i % p.channels;
    float total = 0;
    for (int j = 0; j < at_once; ++j) total += from[j * p.channels];
    out[i] = total;
  }
}

/// Returns the sum of part(i) for 0 <= i < count, in the first lane. All lanes of a warp must call it together. It adds
/// in a fixed tree of kThreads partial sums.
template <typename Part>
__device__ double warp_total(int count, const Part& part) {
  constexpr int kShare = kThreads / 32;
  double sums[kShare] = {};
#pragma unroll
  for (int j = 0; j < kShare; ++j)
    for (int i = static_cast<int>(threadIdx.x) % 32 + 32 * j; i < count; i += kThreads) sums[j] += part(i);
#pragma unroll
  for (int half = kShare / 2; half > 0; half /= 2) {
#pragma unroll
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  double total = sums[0];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) total += __shfl_down_sync(~0U, total, lanes);
  return total;
}

/// Combines the partial sums. Each block computes one group of a frame; the grid is (groups, frames). Channels have
/// different origins. So their means are combined first, and then the squares around the common mean.
template <typename T>
__global__ void __launch_bounds__(kThreads) finish(const __grid_constant__ GroupStatistics p, int blocks) {
  __shared__ double sums[2][kMaxStatisticsChannels];
  const int per_group = p.channels / p.groups, first = static_cast<int>(blockIdx.x) * per_group;
  const double pixels = static_cast<double>(p.pixels);
  const float* partials = partials_of(p, blocks) + first;
  // A warp adds one channel's sum.
  for (int i = static_cast<int>(threadIdx.x) / 32; i < 2 * per_group; i += kThreads / 32) {
    const float* from = partials + i / per_group * p.channels + i % per_group;
    const double total = warp_total(
        blocks, [&](int block) { return static_cast<double>(from[static_cast<int64_t>(block) * 2 * p.channels]); });
    if (threadIdx.x % 32 == 0) sums[i / per_group][i % per_group] = total / pixels;
  }
  __syncthreads();
  const auto constant = [&](int c) {
    return static_cast<double>(origin_of<T>(p, c)) +
           (p.input_bias == nullptr ? 0.0 : static_cast<double>(to_float(static_cast<const T*>(p.input_bias)[c])));
  };
  double mean = 0, variance = 0;
  for (int i = 0; i < per_group; ++i) mean += (sums[0][i] + constant(first + i)) / per_group;
  for (int i = 0; i < per_group; ++i) {
    const double away = sums[0][i] + constant(first + i) - mean;
    variance += (sums[1][i] - sums[0][i] * sums[0][i] + away * away) / per_group;
  }
  if (p.moments != nullptr) {
    if (threadIdx.x > 0) return;
    const int64_t at = static_cast<int64_t>(blockIdx.y) * p.groups + blockIdx.x;
    p.moments[at] = mean;
    p.moments[static_cast<int64_t>(p.frames) * p.groups + at] = variance;
    return;
  }
  const double inverse = 1.0 / sqrt(variance + static_cast<double>(p.eps));
  for (int i = threadIdx.x; i < per_group; i += kThreads) {
    const int c = first + i;
    const double scale = static_cast<double>(to_float(static_cast<const T*>(p.weight)[c])) * inverse;
    const double added =
        p.input_bias == nullptr ? 0.0 : static_cast<double>(to_float(static_cast<const T*>(p.input_bias)[c]));
    const int64_t at = static_cast<int64_t>(blockIdx.y) * p.channels + c;
    p.scale[at] = static_cast<float>(scale);
    p.shift[at] =
        static_cast<float>(static_cast<double>(to_float(static_cast<const T*>(p.bias)[c])) + (added - mean) * scale);
  }
}

template <typename T>
void launch(const GroupStatistics& p, Stream stream) {
  const int columns = p.channels / kLaneElements, at_once = kThreads / columns;
  // A block writes partial sums, which should be small compared with the pixels that it reads. One frame alone would
  // give too few blocks to fill the GPU, so each block then gets few pixels. With several frames there are enough
  // blocks if each gets four times as many pixels.
  const int64_t each = at_once * kTogether * (p.frames > 1 ? 4 : 1), wanted = (p.pixels + each - 1) / each;
  const int blocks = static_cast<int>(std::min<int64_t>(kStatisticsBlocks, wanted));
  const auto frames = static_cast<unsigned>(p.frames);
  const size_t shared = 2 * sizeof(float) * static_cast<size_t>(at_once * p.channels);
  attention::cuda::start(partial_sums<T>, dim3(static_cast<unsigned>(blocks), frames), kThreads, shared, stream, p);
  attention::cuda::start(finish<T>, dim3(static_cast<unsigned>(p.groups), frames), kThreads, 0, stream, p, blocks);
}

}  // namespace

const char* group_statistics(const GroupStatistics& p, Stream stream) {
  return attention::cuda::launched(
      [&] { of_type(p.element, launch<float>, launch<__half>, launch<__nv_bfloat16>)(p, stream); });
}

}  // namespace sparsereel::models::cuda
