// Writes Q as int8 records, with balanced channels and a scale for each query. Also writes the means of 16 queries for
// the block selection.
#include "attention/cuda/launched.cuh"
#include "attention/cuda/prepass/quantize.cuh"

namespace sparsereel::attention::cuda {
namespace {

/// Returns true if the call needs similarities or a log-sum-exp, which is rare. A branch for these in the kernel would
/// take a fifth of its time, so such calls have their own kernel.
bool asks_for_more(const Buffers& buffers) {
  return buffers.q_dot_mean != nullptr || buffers.q_direction != nullptr;
}

/// Returns the number of CTAs per SM for which the compiler must leave registers.
constexpr int ctas_per_multiprocessor(int D, RowSteps steps) {
  if (D == 256) return 3;
  if (steps == RowSteps::none) return 8;
  const bool slow = steps == RowSteps::any || steps == RowSteps::by_part;
  return (steps == RowSteps::norm ? 7 : slow ? 5 : 6) - (D == 128 ? 1 : 0);
}

/// Loads a thread's part of some queries, and the data that the prologue needs for them.
template <typename T, int D, RowSteps kSteps, int kCount, typename TokenOf>
__device__ void load_queries(const Rows<T>& rows, const RowPrologue<D, kSteps>& prologue, const TokenOf& token_of,
                             Packed<T> (&raw)[kCount], TokenPart (&parts)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    raw[i] = rows.load(token_of(i));
    if constexpr (kSteps != RowSteps::none) parts[i] = prologue.load(token_of(i));
  }
}

/// Returns the dot product of a query and the mean key. mean: this thread's columns of the mean key.
template <int D>
__device__ float dot_with(const float (&x)[kLaneElements], const float* mean) {
  float dot = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) dot += x[i] * mean[i];
  return row_sum<D>(dot);
}

template <typename T, int D, RowSteps kSteps, bool kMore>
__global__ void __launch_bounds__(kQuantizeThreads, ctas_per_multiprocessor(D, kSteps))
    quantize_queries(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                     const __grid_constant__ Buffers buffers) {
  using Thread = RecordThread<D>;
  const Thread thread;
  const int bh = thread.b * p.heads + thread.h, bk = sizes.group.of(bh), column = thread.column;
  const RowPrologue<D, kSteps> prologue(p.prologue, p.prologue.of_queries(),
                                        moments_of(p, buffers.token_moments, true, thread.b), thread.h, p.head_dim,
                                        column);
  const Rows<T> rows(p.q, thread.b, thread.h, p.head_dim, column);
  const int64_t record = static_cast<int64_t>(bh) * sizes.query_blocks + thread.block;
  const int left = p.queries - thread.block * kRecord;  // real queries from here on; may be below 0 or above kRecord
  const float to_log2 = p.scale * kLog2e;
  uint8_t* const out = buffers.q + record * kRecord * D;
  float* const scales = buffers.q_scale + record * kRecord;
  const int pooled = video_part(p.queries, p.text_tokens) - thread.block * kRecord;  // video queries from here on
  float balance[kLaneElements];
  load_row(buffers.q_balance + static_cast<int64_t>(bk) * D + column, balance);
  __shared__ CellSums<D> cells;
  Pool<D> direction;
  float square = 0;  // for note_longest()
  for (int first = 0; first < Thread::kRounds; first += Thread::kTogether) {
    const auto token_of = [&](int i) { return min(thread.block * kRecord + thread.row(first + i), p.queries - 1); };
    static_assert(Thread::kTogether % CellSums<D>::kRounds == 0);
    float cell[kLaneElements];
    Packed<T> raw[Thread::kTogether];
    TokenPart parts[Thread::kTogether];
    load_queries(rows, prologue, token_of, raw, parts);
#pragma unroll
    for (int i = 0; i < Thread::kTogether; ++i) {
      const int row = thread.row(first + i), token = thread.block * kRecord + row;
      float x[kLaneElements];
      unpack(raw[i], x);  // past the end, this is the last query again
      if constexpr (kSteps != RowSteps::none) prologue.apply(token_of(i), parts[i], x);
      const float weight = row < pooled ? 1.0F : 0.0F;
      if (kMore && buffers.q_direction != nullptr) direction.add_direction(x, weight);
#pragma unroll
      for (int c = 0; c < kLaneElements; ++c) x[c] *= balance[c];
      const float scale = row_max<D>(largest_of(x)) * (1 / kInt8Max) + kInt8MinScale;
      const uint2 packed = pack_int8(x, fast_inverse(scale));
      *reinterpret_cast<uint2*>(out + thread.offset(first + i)) = packed;
      square = fmaxf(square, static_cast<float>(square_of(packed)) * scale * scale);
      if (column == 0) scales[row] = row < left ? scale * to_log2 : 0.0F;
      if (kMore && buffers.q_dot_mean != nullptr) {
        const float dot = dot_with<D>(x, buffers.key_mean + static_cast<int64_t>(bk) * D + column) * p.scale;
        if (column == 0 && row < left) buffers.q_dot_mean[static_cast<int64_t>(bh) * p.queries + token] = dot;
      }
      if (buffers.q_mean != nullptr) {
#pragma unroll
        for (int c = 0; c < kLaneElements; ++c)
          cell[c] = fmaf(x[c], weight, i % CellSums<D>::kRounds == 0 ? 0.0F : cell[c]);
        if ((i + 1) % CellSums<D>::kRounds == 0) cells.put(cell, (first + i) / CellSums<D>::kRounds);
      }
    }
  }
  note_longest<D>(square * to_log2 * to_log2, buffers.longest + bh);
  if (buffers.q_mean != nullptr) cells.write_means(pooled, buffers.q_mean + record * kBlockCells * D);
  if (kMore && buffers.q_direction != nullptr)
    direction.write(1, [&](int c, float x) { buffers.q_direction[record * D + c] = x; });
}

template <typename T, int D>
void launch(const LaunchContext& context) {
  for_row_steps(context.params.prologue, [&](auto steps) {
    constexpr RowSteps kSteps = decltype(steps)::value;
    const auto kernel =
        asks_for_more(context.buffers) ? quantize_queries<T, D, kSteps, true> : quantize_queries<T, D, kSteps, false>;
    context.start(kernel, record_grid(context.params.heads, context.sizes.query_blocks, context.params.batch),
                  kQuantizeThreads);
  });
}

}  // namespace

void launch_quantize_queries(const LaunchContext& context) {
  SPARSEREEL_FOR_TYPE(context, launch);
}

}  // namespace sparsereel::attention::cuda
