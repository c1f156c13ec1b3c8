// Mean and deviation of groups of channels over all pixels: partial sums of each block, then one block a group.
#include <algorithm>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/vae/cuda/launch.h"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::kLaneElements;
using attention::cuda::load_packed;
using attention::cuda::to_float;
using attention::cuda::unpack;

constexpr int kThreads = 256;
constexpr int kTogether = 4;  // pixels in flight

/// What channel `c` is measured from, so that squares do not cancel: its value at the first pixel.
template <typename T>
__device__ float origin_of(const GroupStatistics& p, int c) {
  return to_float(static_cast<const T*>(p.x)[c]);
}

/// Sums of x - origin and of its square over this block's pixels. A thread keeps to eight channels of every
/// `stride`-th pixel; the threads beyond the last whole pixel idle.
template <typename T>
__global__ void __launch_bounds__(kThreads, 4) partial_sums(const __grid_constant__ GroupStatistics p) {
  extern __shared__ float shared[];  // [2][pixels at once][channels]
  const int columns = p.channels / kLaneElements, at_once = kThreads / columns;
  const int column = static_cast<int>(threadIdx.x) % columns, place = static_cast<int>(threadIdx.x) / columns;
  float sum[kLaneElements] = {}, squares[kLaneElements] = {}, origin[kLaneElements];
  const T* x = static_cast<const T*>(p.x) + column * kLaneElements;
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
  float* out = p.partials + static_cast<int64_t>(blockIdx.x) * 2 * p.channels;
  for (int i = threadIdx.x; i < 2 * p.channels; i += kThreads) {
    const float* from = shared + i / p.channels * at_once * p.channels + i % p.channels;
    float total = 0;
    for (int j = 0; j < at_once; ++j) total += from[j * p.channels];
    out[i] = total;
  }
}

/// The sum over the block's threads, given to all of them.
__device__ double block_sum(double x) {
  __shared__ double parts[kThreads];
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  const double total = parts[0];
  __syncthreads();
  return total;
}

/// A block a group. Channels are measured from different origins: their means are brought together first, then the
/// squares around the common mean.
template <typename T>
__global__ void __launch_bounds__(kThreads) finish(const __grid_constant__ GroupStatistics p, int blocks) {
  __shared__ double sums[2][kMaxStatisticsChannels];
  const int per_group = p.channels / p.groups, first = static_cast<int>(blockIdx.x) * per_group;
  const double pixels = static_cast<double>(p.pixels);
  for (int i = 0; i < per_group; ++i) {
    double sum = 0, squares = 0;
    for (int block = threadIdx.x; block < blocks; block += kThreads) {
      const float* from = p.partials + static_cast<int64_t>(block) * 2 * p.channels + first + i;
      sum += static_cast<double>(from[0]);
      squares += static_cast<double>(from[p.channels]);
    }
    sums[0][i] = block_sum(sum) / pixels;
    sums[1][i] = block_sum(squares) / pixels;
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
  const double inverse = 1.0 / sqrt(variance + static_cast<double>(p.eps));
  for (int i = threadIdx.x; i < per_group; i += kThreads) {
    const int c = first + i;
    const double scale = static_cast<double>(to_float(static_cast<const T*>(p.weight)[c])) * inverse;
    const double added =
        p.input_bias == nullptr ? 0.0 : static_cast<double>(to_float(static_cast<const T*>(p.input_bias)[c]));
    p.scale[c] = static_cast<float>(scale);
    p.shift[c] =
        static_cast<float>(static_cast<double>(to_float(static_cast<const T*>(p.bias)[c])) + (added - mean) * scale);
  }
}

template <typename T>
void launch(const GroupStatistics& p, Stream stream) {
  const int columns = p.channels / kLaneElements, at_once = kThreads / columns;
  const int64_t wanted = (p.pixels + at_once * kTogether - 1) / (at_once * kTogether);
  const int blocks = static_cast<int>(std::min<int64_t>(kStatisticsBlocks, wanted));
  const size_t shared = 2 * sizeof(float) * static_cast<size_t>(at_once * p.channels);
  attention::cuda::start(partial_sums<T>, blocks, kThreads, shared, stream, p);
  attention::cuda::start(finish<T>, p.groups, kThreads, 0, stream, p, blocks);
}

}  // namespace

const char* group_statistics(const GroupStatistics& p, Stream stream) {
  return attention::cuda::launched(
      [&] { p.element == Element::fp16 ? launch<__half>(p, stream) : launch<__nv_bfloat16>(p, stream); });
}

}  // namespace sparsereel::models::cuda
