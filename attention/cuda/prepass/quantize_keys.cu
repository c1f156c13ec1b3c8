// Subtracts K's mean, balances the channels, and writes K as int8 records with four scales. For the block selection it
// also writes the mean and the self-similarity of each block of 64 keys.
#include "attention/cuda/launched.cuh"
#include "attention/cuda/prepass/quantize.cuh"
#include "attention/cuda/warp.cuh"

namespace sparsereel::attention::cuda {
namespace {

/// Returns the number of CTAs per SM for which the compiler must leave registers.
constexpr int ctas_per_multiprocessor(int D, RowSteps steps) {
  const bool plain = steps == RowSteps::none || steps == RowSteps::norm;
  if (D == 256) return plain ? 3 : 2;
  if (D == 128) return plain || steps == RowSteps::rms_across_rotary ? 5 : 4;
  return plain ? 7 : steps == RowSteps::any || steps == RowSteps::by_part ? 5 : 6;
}

/// Loads a thread's part of a record and applies the prologue. Rows past the last key of the batch entry repeat that
/// key, or key 0 if the batch entry has no keys. Records that have no key of the batch entry are made too, but no list
/// contains them.
template <typename T, int D, RowSteps kSteps>
__device__ __forceinline__ void load_keys(const Rows<T>& rows, const RowPrologue<D, kSteps>& prologue,
                                          const RecordThread<D>& thread, int count,
                                          Packed<T> (&raw)[RecordThread<D>::kRounds]) {
  using Thread = RecordThread<D>;
  const auto token_of = [&](int round) { return max(min(thread.block * kRecord + thread.row(round), count - 1), 0); };
#pragma unroll
  for (int round = 0; round < Thread::kRounds; ++round) raw[round] = rows.load(token_of(round));
  if constexpr (kSteps != RowSteps::none) {
#pragma unroll
    for (int first = 0; first < Thread::kRounds; first += Thread::kTogether) {
      TokenPart parts[Thread::kTogether];
#pragma unroll
      for (int i = 0; i < Thread::kTogether; ++i) parts[i] = prologue.load(token_of(first + i));
#pragma unroll
      for (int i = 0; i < Thread::kTogether; ++i) {
        float x[kLaneElements];
        unpack(raw[first + i], x);
        prologue.apply(token_of(first + i), parts[i], x);
        // Rounded to T, as in a model that applies norm and rotary embedding before attention. T also takes half the
        // registers of fp32.
        raw[first + i] = pack<T>(x);
      }
    }
  }
}

/// Scales a key, as it was before balancing, to length 1 and adds it. balance: for the lane's channels, the factors by
/// which k was divided (and q multiplied).
template <int D>
__device__ __forceinline__ void add_unbalanced(Pool<D>& direction, const float (&x)[kLaneElements],
                                               const float* balance, float weight) {
  float unbalanced[kLaneElements];
  load_row(balance, unbalanced);
#pragma unroll
  for (int c = 0; c < kLaneElements; ++c) unbalanced[c] *= x[c];
  direction.add_direction(unbalanced, weight);
}

/// Writes the mean of `real` keys in bf16, as a row of the matrix that the selection multiplies with mean queries.
template <int D>
__device__ __forceinline__ void write_mean(Pool<D>& sum, int real, int block, uint16_t* means) {
  sum.write(1.0F / static_cast<float>(max(1, real)),
            [&](int c, float x) { means[pooled_offset<D>(block, c)] = __bfloat16_as_ushort(__float2bfloat16(x)); });
}

/// Writes the similarity of a record with `real` keys: the mean cosine over all pairs of its keys.
template <int D>
__device__ __forceinline__ void write_similarity(Pool<D>& direction, int real, float* similarity) {
  __shared__ float total[D];
  direction.write(1, [&](int c, float x) { total[c] = x; });
  if (threadIdx.x >= 32) return;
  float total_square = 0;
  for (int c = static_cast<int>(threadIdx.x); c < D; c += 32) total_square += total[c] * total[c];
  total_square = warp_sum(total_square);
  if (threadIdx.x == 0) *similarity = total_square / static_cast<float>(max(1, real * real));
}

/// Writes the records of K. kSimilarity: true if the call needs the similarity of blocks, which is rare.
template <typename T, int D, RowSteps kSteps, bool kSimilarity>
__global__ void __launch_bounds__(kQuantizeThreads, ctas_per_multiprocessor(D, kSteps))
    quantize_keys(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                  const __grid_constant__ Buffers buffers) {
  using Thread = RecordThread<D>;
  const Thread thread;
  const int bk = thread.b * sizes.kv_heads + thread.h, column = thread.column;
  const RowPrologue<D, kSteps> prologue(p.prologue, p.prologue.of_keys(),
                                        moments_of(p, buffers.token_moments, false, thread.b), thread.h, p.head_dim,
                                        column);
  const Rows<T> rows(p.k, thread.b, thread.h, p.head_dim, column);
  const int64_t record = static_cast<int64_t>(bk) * sizes.key_records + thread.block;
  const int64_t block = static_cast<int64_t>(bk) * sizes.key_blocks + thread.block;
  const int count = key_count(p, thread.b), left = count - thread.block * kRecord;
  float most = 0;
  Packed<T> raw[Thread::kRounds];
  load_keys<T, D, kSteps>(rows, prologue, thread, count, raw);
  float mean[kLaneElements], balance[kLaneElements];
  load_row(buffers.key_mean + static_cast<int64_t>(bk) * D + column, mean);
  load_row(buffers.k_balance + static_cast<int64_t>(bk) * D + column, balance);
  // Calls f(round, key). The mean is subtracted from the key, and its channels are balanced.
  const auto each_row = [&](const auto& f) {
#pragma unroll
    for (int round = 0; round < Thread::kRounds; ++round) {
      float x[kLaneElements];
      unpack(raw[round], x);
#pragma unroll
      for (int c = 0; c < kLaneElements; ++c) x[c] = fmaf(x[c], balance[c], -mean[c]);
      f(round, x);
    }
  };
  Pool<D> sum, direction;
  each_row([&](int round, const float(&x)[kLaneElements]) {
    most = fmaxf(most, largest_of(x));
    if (buffers.k_mean == nullptr) return;
    const float weight = thread.row(round) < left ? 1.0F : 0.0F;
    sum.add(x, weight);
    if (kSimilarity) add_unbalanced(direction, x, buffers.q_balance + static_cast<int64_t>(bk) * D + column, weight);
  });
  most = warp_max(most);
  const float scale = most * (1 / kInt8Max) + kInt8MinScale, inverse = fast_inverse(scale);
  if (threadIdx.x % 32 == 0) buffers.k_scale[record * kKeyGroups + thread.warp] = scale;
  uint8_t* const out = buffers.k + record * kRecord * D;
  int square = 0;  // for note_longest()
  each_row([&](int round, const float(&x)[kLaneElements]) {
    const uint2 packed = pack_int8(x, inverse);
    *reinterpret_cast<uint2*>(out + thread.offset(round)) = packed;
    square = max(square, square_of(packed));
  });
  note_longest<D>(static_cast<float>(square) * scale * scale, buffers.longest + sizes.batch_heads + bk);
  const int real = max(0, min(kRecord, left));
  if (buffers.k_mean != nullptr)
    write_mean(sum, real, thread.block, buffers.k_mean + static_cast<int64_t>(bk) * sizes.pooled_blocks * D);
  if (kSimilarity) write_similarity<D>(direction, real, buffers.k_similarity + block);
}

template <typename T, int D>
void launch(const LaunchContext& context) {
  for_row_steps(context.params.prologue, [&](auto steps) {
    constexpr RowSteps kSteps = decltype(steps)::value;
    const auto kernel = context.buffers.k_similarity != nullptr ? quantize_keys<T, D, kSteps, true>
                                                                : quantize_keys<T, D, kSteps, false>;
    context.start(kernel, record_grid(context.sizes.kv_heads, context.sizes.key_blocks, context.params.batch),
                  kQuantizeThreads);
  });
}

}  // namespace

void launch_quantize_keys(const LaunchContext& context) {
  SPARSEREEL_FOR_TYPE(context, launch);
}

}  // namespace sparsereel::attention::cuda
