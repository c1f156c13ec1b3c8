// Q -> int8 records with a scale a query, and the means of 64 queries for the block selection.
#include "attention/cuda/quantise.cuh"

namespace sparsereel::attention::cuda {
namespace {

template <typename T, int D>
__global__ void __launch_bounds__(kQuantiseThreads, D == 256 ? 4 : 8)
    quantise_queries(const __grid_constant__ Problem p, const __grid_constant__ Sizes sizes,
                     const __grid_constant__ Buffers buffers) {
  const RecordThread<D> thread;
  const int bh = thread.b * p.heads + thread.h, column = thread.column;
  const RowPrologue<D> prologue(p.prologue, p.prologue.q_weight, p.prologue.q_bias,
                                moments_of(p, buffers, true, thread.b), thread.h, p.head_dim, column);
  const Rows<T> rows(p.q, thread.b, thread.h, p.head_dim);
  const int64_t record = static_cast<int64_t>(bh) * sizes.query_blocks + thread.block;
  const int left = p.queries - thread.block * kRecord;  // real queries from the record's start on
  const float to_log2 = p.scale * 1.44269504F;
  Pool<D> sum, direction;
#pragma unroll 4
  for (int round = 0; round < RecordThread<D>::kRounds; ++round) {
    const int row = thread.row(round), token = thread.block * kRecord + row;
    float x[kLaneElements];
    unpack(rows.load(min(token, p.queries - 1), column), x);
    prologue.apply(min(token, p.queries - 1), x);
    if (row >= left) zero(x);
    const float scale = row_max<D>(largest_of(x)) * (1 / kInt8Max) + kInt8MinScale;
    *reinterpret_cast<uint2*>(buffers.q + record * kRecord * D + record_offset<D>(row, column)) =
        pack_int8(x, __fdividef(1.0F, scale));
    if (column == 0) buffers.q_scale[record * kRecord + row] = row < left ? scale * to_log2 : 0.0F;
    if (buffers.q_dot_mean != nullptr) {
      float dot = 0;
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) dot += x[i] * buffers.key_mean[static_cast<int64_t>(bh) * D + column + i];
      dot = row_sum<D>(dot) * p.scale;
      if (column == 0 && row < left) buffers.q_dot_mean[static_cast<int64_t>(bh) * p.queries + token] = dot;
    }
    if (buffers.q_mean != nullptr) sum.add(x);
    if (buffers.q_direction != nullptr) direction.add_direction(x);
  }
  if (buffers.q_mean != nullptr)
    sum.write(1.0F / static_cast<float>(max(1, min(kRecord, left))), buffers.q_mean + record * D);
  if (buffers.q_direction != nullptr) direction.write(1, buffers.q_direction + record * D);
}

}  // namespace

void launch_quantise_queries(const Call& call) {
  SPARSEREEL_LAUNCH_QUANTISE(quantise_queries, call, call.sizes.query_blocks);
}

}  // namespace sparsereel::attention::cuda
