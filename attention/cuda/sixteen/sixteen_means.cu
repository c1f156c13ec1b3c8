// Prepares the inputs of attention in 16 bits: q and k after their prologue, and the means of the cells of K and V as
// rows of the same type. Also computes the spreads of V's blocks.
#include <type_traits>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/prepass/means.cuh"
#include "attention/cuda/prepass/quantize.cuh"

namespace sparsereel::attention::cuda {
namespace {

template <typename T>
using PairOf = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

template <typename T>
__device__ float2 load_pair(const T* from) {
  const PairOf<T> pair = *reinterpret_cast<const PairOf<T>*>(from);
  return {to_float(pair.x), to_float(pair.y)};
}

template <typename T>
__device__ void store_pair(float x, float y, uint16_t* to) {
  PairOf<T> pair;
  from_float(x, pair.x);
  from_float(y, pair.y);
  *reinterpret_cast<PairOf<T>*>(to) = pair;
}

/// Returns the first row of this warp's block in k or v.
template <typename T>
__device__ const T* block_rows(const View& view, const Sizes& sizes, const MeanWarp& at) {
  return static_cast<const T*>(view.data) + at.bk / sizes.kv_heads * view.batch_stride +
         at.bk % sizes.kv_heads * view.head_stride +
         static_cast<int64_t>(at.index * kMeanBlocks + at.warp) * kRecord * view.token_stride;
}

/// Two channels of a cell's 16 rows.
struct CellPair {
  float2 x[kCell];

  template <typename T>
  __device__ CellPair(const T* rows, int64_t stride) {
#pragma unroll
    for (int i = 0; i < kCell; ++i) x[i] = load_pair(rows + i * stride);
  }

  __device__ float2 mean() const {
    float2 sum = {};
#pragma unroll
    for (int i = 0; i < kCell; ++i) sum = {sum.x + x[i].x, sum.y + x[i].y};
    return {sum.x * (1.0F / kCell), sum.y * (1.0F / kCell)};
  }

  /// Returns the sum over the 16 rows of the squared distances from `mean`, for each of the two channels.
  __device__ float2 squares(float2 mean) const {
    float2 sum = {};
#pragma unroll
    for (int i = 0; i < kCell; ++i) {
      const float a = x[i].x - mean.x, b = x[i].y - mean.y;
      sum = {fmaf(a, a, sum.x), fmaf(b, b, sum.y)};
    }
    return sum;
  }
};

template <typename T, int D>
__device__ void write_key_means(const KernelParams& p, const Sizes& sizes, const MeanWarp& at, uint16_t* record) {
  const T* rows = block_rows<T>(p.k, sizes, at);
#pragma unroll 1
  for (int channel = 2 * at.lane; channel < p.head_dim; channel += 64) {
#pragma unroll
    for (int cell = 0; cell < kBlockCells; ++cell) {
      const float2 mean = CellPair(rows + cell * kCell * p.k.token_stride + channel, p.k.token_stride).mean();
      store_pair<T>(mean.x, mean.y, record + mean_key(at.warp, cell) * D + channel);
    }
  }
}

__device__ void store_block_mean(float x, float y, uint16_t* to) {
  constexpr float kMost = 65504;  // largest fp16
  *reinterpret_cast<__half2*>(to) = __floats2half2_rn(fminf(fmaxf(x, -kMost), kMost), fminf(fmaxf(y, -kMost), kMost));
}

/// Writes the means of V's cells and the spread of this warp's block. prepass/means_values.cu does the same from
/// records.
template <typename T, int D>
__device__ void write_value_means(const KernelParams& p, const Sizes& sizes, const Buffers& buffers, const MeanWarp& at,
                                  uint16_t* record) {
  const T* rows = block_rows<T>(p.v, sizes, at);
  const int64_t head = static_cast<int64_t>(at.bk) * D;
  uint16_t* const block_mean = buffers.v_block_mean + at.block(sizes) * D;
  float deviation = 0, far = 0;  // sums of squares
#pragma unroll 1
  for (int channel = 2 * at.lane; channel < p.head_dim; channel += 64) {
    float2 total = {}, square = {};
#pragma unroll
    for (int cell = 0; cell < kBlockCells; ++cell) {
      const CellPair pair(rows + cell * kCell * p.v.token_stride + channel, p.v.token_stride);
      const float2 mean = pair.mean(), squares = pair.squares(mean);
      store_pair<T>(mean.x, mean.y, record + mean_key(at.warp, cell) * D + channel);
      total = {total.x + mean.x, total.y + mean.y};
      square = {square.x + squares.x, square.y + squares.y};
    }
    if (buffers.v_spread == nullptr) continue;
    const float2 center = *reinterpret_cast<const float2*>(buffers.v_center + head + channel);
    const float2 distance = {total.x * (1.0F / kBlockCells) - center.x, total.y * (1.0F / kBlockCells) - center.y};
    deviation += (square.x + square.y) * (1.0F / kRecord);
    far = fmaf(distance.x, distance.x, fmaf(distance.y, distance.y, far));
    if (buffers.v_block_mean == nullptr) continue;
    const float2 scale = *reinterpret_cast<const float2*>(buffers.v_scale + head + channel);
    store_block_mean(distance.x / scale.x, distance.y / scale.y, block_mean + channel);
  }
  if (buffers.v_block_mean != nullptr)
    for (int channel = p.head_dim + 2 * at.lane; channel < D; channel += 64)
      store_block_mean(0, 0, block_mean + channel);
  if (buffers.v_spread == nullptr) return;
  deviation = warp_sum(deviation);
  far = warp_sum(far);
  if (at.lane == 0) buffers.v_spread[at.block(sizes)] = {sqrtf(deviation), sqrtf(far)};
}

template <typename T, int D>
__global__ void __launch_bounds__(kMeanThreads)
    means_in_sixteen(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                     const __grid_constant__ Buffers buffers) {
  const MeanWarp at(p, sizes);
  const int64_t first = (static_cast<int64_t>(at.bk) * sizes.mean_records + at.index) * kRecord * D;
  if (at.real()) {
    write_key_means<T, D>(p, sizes, at, buffers.mean_keys + first);
    write_value_means<T, D>(p, sizes, buffers, at, buffers.mean_values + first);
    return;
  }
  for (int cell = 0; cell < kBlockCells; ++cell) {  // these means have the weight 0, but 0 times NaN would be NaN
    for (int channel = 2 * at.lane; channel < D; channel += 64) {
      const int64_t to = first + mean_key(at.warp, cell) * D + channel;
      store_pair<T>(0, 0, buffers.mean_keys + to);
      store_pair<T>(0, 0, buffers.mean_values + to);
    }
  }
}

template <typename T, int D>
void launch(const LaunchContext& context) {
  context.start(means_in_sixteen<T, D>, mean_grid(context.sizes), kMeanThreads);
}

/// Returns a view of contiguous memory [batch, heads, tokens, head_dim] for these tokens.
View contiguous_heads(const TokenRows& rows, uint16_t* data) {
  const int64_t head = int64_t{rows.tokens} * rows.head_dim;
  return {.data = data, .batch_stride = rows.heads * head, .token_stride = rows.head_dim, .head_stride = head};
}

}  // namespace

KernelParams launch_rows(const KernelParams& params, const Buffers& buffers, Stream stream) {
  if (buffers.q_rows == nullptr) return params;
  KernelParams ready = params;
  PrologueRows queries{queries_of(params)}, keys{keys_of(params)};
  ready.q = queries.out = contiguous_heads(queries, buffers.q_rows);
  ready.k = keys.out = contiguous_heads(keys, buffers.k_rows);
  ready.prologue = {};
  queries.prologue = keys.prologue = params.prologue;
  queries.norm = params.prologue.of_queries();
  keys.norm = params.prologue.of_keys();
  launch_moments(params, buffers.token_moments, stream);
  if (buffers.token_moments != nullptr) {
    queries.norm.moments = buffers.token_moments;
    keys.norm.moments = buffers.token_moments + 2 * int64_t{params.batch} * params.queries;
  }
  launch_prologue(queries, stream);
  launch_prologue(keys, stream);
  return ready;
}

void launch_sixteen_means(const LaunchContext& context) {
  if (context.sizes.mean_records == 0) return;
  SPARSEREEL_FOR_TYPE(context, launch);
}

}  // namespace sparsereel::attention::cuda
