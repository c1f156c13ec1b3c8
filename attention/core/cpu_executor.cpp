// Runs a call on a CPU: converts 16-bit tensors to fp32, applies the prologue, selects blocks and computes attention
// over them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/core/check.h"
#include "attention/core/elements.h"
#include "attention/core/executor.h"
#include "attention/core/refusal.h"
#include "attention/cpu/block_sparse.h"
#include "attention/cpu/prologue.h"
#include "attention/cpu/selection.h"

namespace sparsereel::attention {
namespace {

constexpr size_t kCacheLine = 64;

/// Returns Arithmetic::exact, which is fp32, unless the call is quantized. A quantized call emulates the Hopper kernel,
/// or the `ada` kernel if forced_kernel() is `ada`.
cpu::Arithmetic arithmetic_of(const Call& call) {
  if (!call.quantized) return cpu::Arithmetic::exact;
  return forced_kernel() == "ada" ? cpu::Arithmetic::int8_values : cpu::Arithmetic::int8;
}

const char* name_of(cpu::Arithmetic arithmetic) {
  if (arithmetic == cpu::Arithmetic::exact) return "cpu block-sparse fp32";
  return arithmetic == cpu::Arithmetic::int8 ? "cpu int8 and e4m3 emulated in fp32" : "cpu int8 emulated in fp32";
}

RowSizes query_sizes(const Call& call) {
  return {call.batch, call.queries, call.heads, call.head_dim};
}
RowSizes key_sizes(const Call& call) {
  return {call.batch, call.keys, call.heads_of_keys(), call.head_dim};
}

/// The pieces into which the workspace is divided. A piece that the call does not need is null.
struct CpuPieces {
  float *packed = nullptr, *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr;
  int64_t floats = 0;  // total number of floats

  CpuPieces(const Call& call, float* memory) {
    const bool wide = call.element == Element::fp32, copies = !wide || !call.prologue.is_empty();
    const auto take = [&](float*& piece, int64_t count) {
      if (memory != nullptr) piece = memory + floats;
      floats += (count + 15) / 16 * 16;  // each piece starts on a cache line
    };
    take(packed, cpu::block_sparse_scratch_floats(masks_of(call, nullptr), arithmetic_of(call)));
    if (copies) take(q, query_sizes(call).count());
    if (copies) take(k, key_sizes(call).count());
    if (!wide) take(v, key_sizes(call).count());
    if (!wide) take(out, query_sizes(call).count());
  }
};

template <typename T>
cpu::View<T> as_view(const StridedRows& rows) {
  return {.data = static_cast<T*>(rows.data),
          .batch_stride = rows.batch_stride,
          .token_stride = rows.token_stride,
          .head_stride = rows.head_stride};
}

StridedRows contiguous_rows(float* data, const RowSizes& sizes) {
  return {.data = data,
          .batch_stride = sizes.tokens * sizes.heads * sizes.head_dim,
          .token_stride = sizes.heads * sizes.head_dim,
          .head_stride = sizes.head_dim};
}

class CpuCall {
 public:
  CpuCall(const Call& call, float* memory, const cpu::ParallelFor& parallel)
      : call_(call), pieces_(call, memory), parallel_(parallel), params_(masks_of(call, call.key_lengths)) {
    params_.q = ready(call.q, query_sizes(call), pieces_.q, call.prologue.of_queries());
    params_.k = ready(call.k, key_sizes(call), pieces_.k, call.prologue.of_keys());
    params_.v = as_view<const float>(widened(call.v, key_sizes(call), pieces_.v));
    params_.out = as_view<float>(pieces_.out == nullptr ? call.out : contiguous_rows(pieces_.out, query_sizes(call)));
    params_.lse = call.lse;
    for (int64_t h = 0; h < call.heads; ++h) heads_.push_back(call.policy.head(h));
  }

  RunCounts run() const {
    const cpu::Prediction blocks = choose_blocks();
    // If every block is computed, nothing is skipped, not even P.V.
    std::vector<double> thresholds;
    for (const HeadPolicy& head : heads_)
      thresholds.push_back(call_.is_dense() || head.dense ? cpu::kNeverSkip : head.pv_threshold);
    const RunCounts outcome{.counts = cpu::block_sparse_attention(params_, blocks.map, thresholds, arithmetic_of(call_),
                                                                  cpu::chosen_tile_kernel(), pieces_.packed, parallel_),
                            .sum_predicted_error = blocks.sum_error,
                            .predicted_tiles = blocks.tiles};
    if (pieces_.out != nullptr) narrow(pieces_.out, query_sizes(call_), call_.out, call_.element, parallel_);
    if (call_.counts != nullptr) count(outcome);
    return outcome;
  }

 private:
  StridedRows widened(const StridedRows& rows, const RowSizes& sizes, float* copy) const {
    if (call_.element == Element::fp32) return rows;
    widen(rows, call_.element, sizes, copy, parallel_);
    return contiguous_rows(copy, sizes);
  }

  /// Returns queries or keys in fp32 after the prologue.
  cpu::View<const float> ready(const StridedRows& rows, const RowSizes& sizes, float* copy,
                               const RowNormOf<const float*>& norm) const {
    const StridedRows wide = widened(rows, sizes, copy);
    CallPrologue prologue = call_.prologue;
    if (prologue.is_empty()) return as_view<const float>(wide);
    if (prologue.rotates())
      prologue.rotary_tokens = static_cast<int>(prologue.rotated_tokens(call_.queries, call_.text_tokens));
    const StridedRows out = contiguous_rows(copy, sizes);
    cpu::run_prologue({.batch = sizes.batch,
                       .tokens = sizes.tokens,
                       .heads = sizes.heads,
                       .head_dim = sizes.head_dim,
                       .in = as_view<const float>(wide),
                       .out = as_view<float>(out),
                       .prologue = prologue,
                       .norm = norm,
                       .text_tokens = call_.text_tokens},
                      parallel_);
    return as_view<const float>(out);
  }

  cpu::Prediction choose_blocks() const {
    if (call_.map != nullptr) return {.map = callers_map(), .sum_error = 0, .tiles = 0};
    if (call_.is_dense()) return {.map = cpu::visible_blocks(params_), .sum_error = 0, .tiles = 0};
    const CallPolicy& policy = call_.policy;
    return cpu::predict_blocks(
        params_, {.heads = heads_, .rows = policy.selection_rows, .ranking = policy.ranking, .part = call_.part},
        parallel_);
  }

  BlockMap callers_map() const {
    BlockMap map(call_.batch, call_.heads, params_.query_blocks(), params_.key_blocks(), false);
    const int64_t together = call_.map_rows / kBlock, rows = (map.query_blocks + together - 1) / together;
    for (int64_t bh = 0; bh < map.batch * map.heads; ++bh) {
      for (int64_t i = 0; i < map.query_blocks; ++i) {
        const uint8_t* from = call_.map + (bh * rows + i / together) * map.key_blocks;
        std::transform(from, from + map.key_blocks, map.row(bh / map.heads, bh % map.heads, i),
                       [](uint8_t bit) { return static_cast<uint8_t>(bit != 0); });
      }
    }
    cpu::keep_visible(params_, map);
    return map;
  }

  void count(const RunCounts& outcome) const {
    call_.counts[SPARSEREEL_COUNT_KEPT] += static_cast<uint64_t>(outcome.counts.kept_blocks);
    call_.counts[SPARSEREEL_COUNT_SKIPPED_PV] += static_cast<uint64_t>(outcome.counts.skipped_pv_blocks);
    call_.counts[SPARSEREEL_COUNT_MEANS] += static_cast<uint64_t>(outcome.counts.mean_blocks);
    const double error = std::ldexp(outcome.sum_predicted_error, 24);
    if (error > 0 && error < 0x1p63) call_.counts[SPARSEREEL_COUNT_ERROR] += static_cast<uint64_t>(std::llround(error));
  }

  const Call& call_;
  const CpuPieces pieces_;
  const cpu::ParallelFor& parallel_;
  cpu::KernelParams params_;
  std::vector<HeadPolicy> heads_;
};

}  // namespace

size_t CpuExecutor::workspace_bytes(const Call& call) const {
  return static_cast<size_t>(CpuPieces(call, nullptr).floats) * sizeof(float) + kCacheLine;
}

RunCounts CpuExecutor::run(const Call& call, void* workspace, size_t bytes, void* /*stream*/) {
  check_rows(call);
  if (call.prologue.rotary_pairs != nullptr)
    throw Refusal(SPARSEREEL_UNSUPPORTED, "the prologue has rotary_pairs, which only GPUs read",
                  "pass the tables rotary_cos and rotary_sin instead");
  if (call.out_scale != nullptr)
    throw Refusal(SPARSEREEL_UNSUPPORTED, "out_scale is set, but a CPU writes no 8-bit output", "leave out_scale null");
  if (call.key_lengths != nullptr) check_key_lengths(call.key_lengths, call.batch, call.keys);
  auto* memory = static_cast<float*>(aligned(call, workspace, bytes, kCacheLine));
  const cpu::ParallelFor parallel = [this] {
    const std::lock_guard lock(mutex_);
    return parallel_;
  }();
  return CpuCall(call, memory, parallel).run();
}

std::string CpuExecutor::describe(const Call& call) const {
  return std::string(name_of(arithmetic_of(call))) + " (" + cpu::chosen_tile_kernel().name + ")" + blocks_text(call) +
         means_text(call);
}

}  // namespace sparsereel::attention
