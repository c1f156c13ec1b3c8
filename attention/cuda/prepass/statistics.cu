// Computes the mean of K, the center and range of V, and the factors that balance the channels of Q and K, from a
// sample of the tokens. A sample serves as well as all tokens, because the result of attention is right whatever these
// numbers are. The softmax does not depend on the vector that is subtracted from K. The vector that is subtracted from
// V is added to the output again. Q is multiplied by the factors by which K is divided. e4m3 has room above the largest
// value of the sample.
#include <cfloat>

#include "attention/cuda/kernels.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/rows.cuh"
#include "attention/cuda/visible.cuh"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;
// How many times as large as the sample's largest |v - center| a value can be before it exceeds e4m3 and its head must
// be quantized again.
// kHeadroom applies if the sample leaves out values. A floating-point format such as e4m3 hardly loses precision if all
// numbers are divided by 256: the error on normal data is .02260, against .02259 with a headroom of 8.
// kHeadroomOfAll applies if the sample contains all values. It is not 1, because the mean of its record is subtracted
// from each value before rounding, which can make the value twice as large.
constexpr float kHeadroom = 256, kHeadroomOfAll = 2;

// The smallest scale of a channel of V: absolute, and relative to the channel's center. It takes effect if all sampled
// values of the channel are equal: their range is then 0, or no more than the rounding error of the center. Two
// different values in bf16 or fp16 differ by much more than this scale, so e4m3 still tells them apart.
constexpr float kLeastScale = 1e-30F, kLeastRelativeScale = 1e-5F;

// A smaller standard deviation of a channel of K, relative to the channel's mean, is taken for rounding error of bf16
// and raised to this value.
constexpr float kLeastDeviation = 1e-3F;
constexpr float kLeastBalanced = 1.0F / (1 << 20);  // see attention/cpu/quantize_constants.h

__device__ float combine(int kind, float x, float y) {
  return kind == kLeastValue ? fminf(x, y) : kind == kLargestValue ? fmaxf(x, y) : x + y;
}

/// The work of one CTA: a part of the sampled tokens of a head. grid: batch x heads; parts; 0 for K and V or 1 for Q. K
/// and V may have fewer heads than Q.
template <int D>
struct Sampler {
  static constexpr int kRowLanes = D / kLaneElements, kRows = kThreads / kRowLanes;
  int head = static_cast<int>(blockIdx.x), chunk = static_cast<int>(blockIdx.y), chunks = static_cast<int>(gridDim.y);
  int column = static_cast<int>(threadIdx.x) % kRowLanes * kLaneElements,
      row = static_cast<int>(threadIdx.x) / kRowLanes;

  /// Calls f(token, real) for this thread's tokens. All lanes of a warp make equally many calls, because the prologue
  /// shuffles data between them. In calls after a lane's last token, `real` is false.
  template <typename F>
  __device__ void each_token(int tokens, int stride, const F& f) const {
    const int samples = ceil_div(tokens, stride), rounds = ceil_div(samples, kRows * chunks);
#pragma unroll 2
    for (int round = 0; round < rounds; ++round) {
      const int index = (round * chunks + chunk) * kRows + row;
      f(index < samples ? index * stride : 0, index < samples);
    }
  }

  /// Writes the CTA's results for kCount statistics (enum Statistic), from `first` on. All threads call it together,
  /// once.
  template <int kCount>
  __device__ void write(const float (&found)[kCount][kLaneElements], int first, float* partials) const {
    auto& shared = room();
#pragma unroll
    for (int kind = 0; kind < kCount; ++kind) {
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) shared[kind][row][column + i] = found[kind][i];
    }
    __syncthreads();
    float* out = partials + ((static_cast<int64_t>(head) * chunks + chunk) * kStatistics + first) * D;
    for (int i = static_cast<int>(threadIdx.x); i < kCount * D; i += kThreads) {
      const int kind = i / D, c = i % D;
      float x = shared[kind][0][c];
      for (int r = 1; r < kRows; ++r) x = combine(first + kind, x, shared[kind][r][c]);
      out[i] = x;
    }
  }

 private:
  /// Returns the shared memory of write(). It is declared here, so that all instantiations of write() use the same
  /// memory.
  __device__ static float (&room())[kQuerySquares][kRows][D] {
    __shared__ float shared[kQuerySquares][kRows][D];
    return shared;
  }
};

template <typename T, int D, RowSteps kSteps>
__device__ void sample_queries(const KernelParams& p, const Sizes& sizes, const Buffers& buffers) {
  const Sampler<D> sampler;
  const int b = sampler.head / p.heads, h = sampler.head % p.heads;
  const Rows<T> q(p.q, b, h, p.head_dim, sampler.column);
  const RowPrologue<D, kSteps> prologue(p.prologue, p.prologue.of_queries(),
                                        moments_of(p, buffers.token_moments, true, b), h, p.head_dim, sampler.column);
  float squares[1][kLaneElements] = {};
  sampler.each_token(balanced_queries(p, b), sizes.query_stride, [&](int token, bool real) {
    float x[kLaneElements];
    const TokenPart part = prologue.load(token);
    unpack(q.load(token), x);
    prologue.apply(token, part, x);
    if (!real) return;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) squares[0][i] = fmaf(x[i], x[i], squares[0][i]);
  });
  sampler.write(squares, kQuerySquares, buffers.partials);
}

template <typename T, int D, RowSteps kSteps>
__device__ void sample_keys_and_values(const KernelParams& p, const Sizes& sizes, const Buffers& buffers) {
  const Sampler<D> sampler;
  if (sampler.head >= sizes.batch_kv_heads) return;
  const int b = sampler.head / sizes.kv_heads, h = sampler.head % sizes.kv_heads, column = sampler.column;
  const Rows<T> k(p.k, b, h, p.head_dim, column), v(p.v, b, h, p.head_dim, column);
  const RowPrologue<D, kSteps> prologue(p.prologue, p.prologue.of_keys(),
                                        moments_of(p, buffers.token_moments, false, b), h, p.head_dim, column);
  float found[kQuerySquares][kLaneElements] = {};
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    found[kLeastValue][i] = FLT_MAX;
    found[kLargestValue][i] = -FLT_MAX;
  }
  sampler.each_token(key_count(p, b), sizes.stat_stride, [&](int token, bool real) {
    float x[kLaneElements], y[kLaneElements];
    const TokenPart part = prologue.load(token);
    unpack(k.load(token), x);
    unpack(v.load(token), y);
    prologue.apply(token, part, x);
    if (!real) return;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      found[kKeySum][i] += x[i];
      found[kKeySquares][i] = fmaf(x[i], x[i], found[kKeySquares][i]);
      found[kValueSum][i] += y[i];
      found[kLeastValue][i] = fminf(found[kLeastValue][i], y[i]);
      found[kLargestValue][i] = fmaxf(found[kLargestValue][i], y[i]);
    }
  });
  sampler.write(found, kKeySum, buffers.partials);
}

/// Samples K and V, or Q. kSteps is RowSteps::by_part for prologues that differ by token or head, and RowSteps::any for
/// all others.
template <typename T, int D, RowSteps kSteps>
__global__ void __launch_bounds__(kThreads, 2)
    sample(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
           const __grid_constant__ Buffers buffers) {
  blockIdx.z == 0 ? sample_keys_and_values<T, D, kSteps>(p, sizes, buffers)
                  : sample_queries<T, D, kSteps>(p, sizes, buffers);
}

/// Returns the largest value over the CTA's D threads, which call it together. A NaN does not count.
template <int D>
__device__ float largest_of_all(float x) {
  __shared__ float shared[D / 32];
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < D / 32; ++warp) x = fmaxf(x, shared[warp]);
  return x;
}

/// Returns the factor s_d for this thread's channel (attention/cpu/balance.h), from the mean squares of q and k.
template <int D>
__device__ float balance_of(float q_square, float k_square) {
  const float q = fmaxf(q_square, kLeastBalanced * largest_of_all<D>(q_square));
  const float k = fmaxf(k_square, kLeastBalanced * largest_of_all<D>(k_square));
  const float balance = sqrtf(sqrtf(k / q));
  return balance > 0 && balance <= FLT_MAX ? balance : 1.0F;
}

template <int D>
__global__ void finish(KernelParams p, Sizes sizes, Buffers buffers) {
  const int bk = blockIdx.x, c = threadIdx.x;
  if (bk == 0 && c == 0) *buffers.next_tile = 0;
  if (bk == 0 && c < kLengthClasses) buffers.class_counts[c] = 0;
  for (int i = c; bk == 0 && i < sizes.value_record_bytes / 4; i += D)
    reinterpret_cast<uint32_t*>(buffers.v_null)[i] = 0;
  constexpr int kChunk = kStatistics * D;
  const int chunks = sizes.stat_chunks, query_chunks = sizes.group.size * chunks;  // chunks of all heads that share bk
  const float* of_keys = buffers.partials + static_cast<int64_t>(bk) * chunks * kChunk + c;
  const float* of_queries = buffers.partials + static_cast<int64_t>(bk) * query_chunks * kChunk + kQuerySquares * D + c;
  float found[kStatistics] = {0, 0, 0, FLT_MAX, -FLT_MAX, 0};
#pragma unroll 8
  for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma unroll
    for (int kind = 0; kind < kQuerySquares; ++kind)
      found[kind] = combine(kind, found[kind], of_keys[chunk * kChunk + kind * D]);
    found[kQuerySquares] += of_queries[chunk * kChunk];
  }
#pragma unroll 8
  for (int chunk = chunks; chunk < query_chunks; ++chunk) found[kQuerySquares] += of_queries[chunk * kChunk];
  const int samples = ceil_div(key_count(p, bk / sizes.kv_heads), sizes.stat_stride);
  const float inverse = samples == 0 ? 0.0F : 1.0F / static_cast<float>(samples);
  // A mean within about 4 standard errors of 0 is noise of the sample. (The range is taken to be 7 deviations, as for
  // normal data.) Subtracting it would only add its rounding error to the outputs, which are averages themselves.
  const float mean = found[kValueSum] * inverse, least = found[kLeastValue], largest = found[kLargestValue];
  const bool real = fabsf(mean) * sqrtf(static_cast<float>(samples)) > 0.6F * (largest - least);
  const float center = real || sizes.stat_stride == 1 ? mean : 0.0F;
  const float range = samples == 0 ? 0.0F : fmaxf(largest - center, center - least);
  const float key_mean = found[kKeySum] * inverse, floor = kLeastDeviation * key_mean;
  const int query_samples = sizes.group.size * ceil_div(balanced_queries(p, bk / sizes.kv_heads), sizes.query_stride);
  const float balance = balance_of<D>(found[kQuerySquares] / static_cast<float>(max(query_samples, 1)),
                                      fmaxf(found[kKeySquares] * inverse - key_mean * key_mean, floor * floor));
  const int64_t at = static_cast<int64_t>(bk) * D + c;
  buffers.q_balance[at] = balance;
  buffers.k_balance[at] = 1.0F / balance;
  buffers.key_mean[at] = key_mean / balance;
  if (c == 0) buffers.v_saturated[bk] = 0;
  buffers.v_center[at] = center;
  const float headroom = sizes.stat_stride > 1 ? kHeadroom : kHeadroomOfAll;
  buffers.v_scale[at] = fmaxf(range * headroom / kE4m3Max, fmaxf(fabsf(center) * kLeastRelativeScale, kLeastScale));
}

template <typename T, int D>
auto sampling_of(const LaunchContext& context) {
  return context.params.prologue.is_by_part() ? sample<T, D, RowSteps::by_part> : sample<T, D, RowSteps::any>;
}

template <typename T>
void launch_sample(const LaunchContext& context) {
  const dim3 grid(context.sizes.batch_heads, context.sizes.stat_chunks, 2);
  const auto run = [&](auto* sampling, auto* finishing) {
    context.start(sampling, grid, kThreads);
    context.start(finishing, context.sizes.batch_kv_heads, context.sizes.D);
  };
  if (context.sizes.D == 64) run(sampling_of<T, 64>(context), finish<64>);
  if (context.sizes.D == 128) run(sampling_of<T, 128>(context), finish<128>);
  if (context.sizes.D == 256) run(sampling_of<T, 256>(context), finish<256>);
}

}  // namespace

void launch_statistics(const LaunchContext& context) {
  switch (context.params.element) {
    case Element::fp16:
      return launch_sample<__half>(context);
    case Element::bf16:
      return launch_sample<__nv_bfloat16>(context);
    case Element::fp32:
      return;
  }
}

}  // namespace sparsereel::attention::cuda
