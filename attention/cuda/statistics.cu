// Mean of K, centre and range of V from a sample of the tokens. Any constant vector may be taken off K (softmax does
// not see it) and off V (it is added back), and e4m3 has room above the largest value, so a sample is as good as all.
#include <cfloat>

#include "attention/cuda/kernels.h"
#include "attention/cuda/rows.cuh"
#include "attention/cuda/visible.cuh"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;
// The largest |v| of the tokens that were not looked at may be this much above that of the sample before its head has
// to be quantised again; e4m3 loses next to nothing by it (.02260 against .02259 with 8, normal data), for what it
// takes is range at the small end. Less the mean of its record even a value that was looked at may be twice as large.
constexpr float kHeadroom = 256, kHeadroomOfAll = 2;

// The least scale, of a channel that looks constant. Relative to its centre: fp32 knows no smaller difference, and bf16
// and fp16 have none.
constexpr float kLeastScale = 1e-30F, kLeastRelativeScale = 1e-5F;

template <typename T, int D>
__global__ void __launch_bounds__(kThreads, 2) sample(Problem p, Sizes sizes, Buffers buffers) {
  constexpr int kRowLanes = D / kLaneElements, kRows = kThreads / kRowLanes;
  const int bh = blockIdx.x, chunk = blockIdx.y, chunks = gridDim.y, b = bh / p.heads, h = bh % p.heads;
  const int column = threadIdx.x % kRowLanes * kLaneElements, row = threadIdx.x / kRowLanes;
  const Rows<T> k(p.k, b, h, p.head_dim, column), v(p.v, b, h, p.head_dim, column);
  const RowPrologue<D> prologue(p.prologue, p.prologue.k_weight, p.prologue.k_bias,
                                moments_of(p, buffers.token_moments, false, b), h, p.head_dim, column);
  float key_sum[kLaneElements] = {}, sum[kLaneElements] = {}, least[kLaneElements], largest[kLaneElements];
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    least[i] = FLT_MAX;
    largest[i] = -FLT_MAX;
  }
  const int samples = ceil_div(key_count(p, b), sizes.stat_stride);
  const int rounds = ceil_div(samples, kRows * chunks);
#pragma unroll 2
  for (int round = 0; round < rounds; ++round) {  // whole warps stay together for the prologue's shuffles
    const int sample_index = (round * chunks + chunk) * kRows + row;
    const bool real = sample_index < samples;
    const int token = real ? sample_index * sizes.stat_stride : 0;
    float x[kLaneElements], y[kLaneElements];
    const TokenPart part = prologue.load(token);
    unpack(k.load(token), x);
    unpack(v.load(token), y);
    prologue.apply(token, part, x);
    if (!real) continue;
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      key_sum[i] += x[i];
      sum[i] += y[i];
      least[i] = fminf(least[i], y[i]);
      largest[i] = fmaxf(largest[i], y[i]);
    }
  }
  __shared__ float shared[4][kRows][D];
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    shared[0][row][column + i] = key_sum[i];
    shared[1][row][column + i] = sum[i];
    shared[2][row][column + i] = least[i];
    shared[3][row][column + i] = largest[i];
  }
  __syncthreads();
  float* out = buffers.partials + (static_cast<int64_t>(bh) * chunks + chunk) * 4 * D;
  for (int i = threadIdx.x; i < 4 * D; i += kThreads) {
    const int kind = i / D, c = i % D;
    float x = shared[kind][0][c];
    for (int r = 1; r < kRows; ++r) {
      const float y = shared[kind][r][c];
      x = kind == 2 ? fminf(x, y) : kind == 3 ? fmaxf(x, y) : x + y;
    }
    out[i] = x;
  }
}

template <int D>
__global__ void finish(Problem p, Sizes sizes, Buffers buffers) {
  const int bh = blockIdx.x, c = threadIdx.x;
  if (bh == 0 && c == 0) *buffers.next_tile = 0;
  if (bh == 0 && c < kLengthClasses) buffers.class_counts[c] = 0;
  for (int i = c; bh == 0 && i < sizes.value_record_bytes / 4; i += D)
    reinterpret_cast<uint32_t*>(buffers.v_null)[i] = 0;
  const float* partial = buffers.partials + static_cast<int64_t>(bh) * sizes.stat_chunks * 4 * D + c;
  float key_sum = 0, sum = 0, least = FLT_MAX, largest = -FLT_MAX;
#pragma unroll 8
  for (int chunk = 0; chunk < sizes.stat_chunks; ++chunk, partial += 4 * D) {
    key_sum += partial[0];
    sum += partial[D];
    least = fminf(least, partial[2 * D]);
    largest = fmaxf(largest, partial[3 * D]);
  }
  const int samples = ceil_div(key_count(p, bh / p.heads), sizes.stat_stride);
  const float inverse = samples == 0 ? 0.0F : 1.0F / static_cast<float>(samples);
  // A mean that the sample cannot tell from 0 (about 4 standard errors; normal data spread over 7 deviations) is noise,
  // and would only add its own rounding to outputs that are averages themselves.
  const float mean = sum * inverse;
  const bool real = fabsf(mean) * sqrtf(static_cast<float>(samples)) > 0.6F * (largest - least);
  const float centre = real || sizes.stat_stride == 1 ? mean : 0.0F;
  const float range = samples == 0 ? 0.0F : fmaxf(largest - centre, centre - least);
  const int64_t at = static_cast<int64_t>(bh) * D + c;
  buffers.key_mean[at] = key_sum * inverse;
  if (c == 0) buffers.v_saturated[bh] = 0;
  buffers.v_centre[at] = centre;
  const float headroom = sizes.stat_stride > 1 ? kHeadroom : kHeadroomOfAll;
  buffers.v_scale[at] = fmaxf(range * headroom / kE4m3Max, fmaxf(fabsf(centre) * kLeastRelativeScale, kLeastScale));
}

template <typename T>
void launch_sample(const Call& call) {
  const dim3 grid(call.sizes.batch_heads, call.sizes.stat_chunks);
  const auto run = [&](auto* sampling, auto* finishing) {
    sampling<<<grid, kThreads, 0, call.stream>>>(call.problem, call.sizes, call.buffers);
    finishing<<<call.sizes.batch_heads, call.sizes.D, 0, call.stream>>>(call.problem, call.sizes, call.buffers);
  };
  if (call.sizes.D == 64) run(sample<T, 64>, finish<64>);
  if (call.sizes.D == 128) run(sample<T, 128>, finish<128>);
  if (call.sizes.D == 256) run(sample<T, 256>, finish<256>);
}

}  // namespace

void launch_statistics(const Call& call) {
  switch (call.problem.element) {
    case Element::fp16:
      return launch_sample<__half>(call);
    case Element::bf16:
      return launch_sample<__nv_bfloat16>(call);
  }
}

}  // namespace sparsereel::attention::cuda
