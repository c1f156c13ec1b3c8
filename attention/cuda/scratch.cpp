// Computes the sizes of a call and lays out its buffers in one piece of memory.
#include "attention/cuda/scratch.h"

#include <algorithm>

#include "attention/cuda/device.h"

namespace sparsereel::attention::cuda {
namespace {

constexpr size_t kAlignment = 1024;
constexpr int kMostParts = 8;  // parts per tile; one CTA adds them up
// Entries that a tile computes in the time that sharing it costs, plus a margin; measured.
#ifdef SPARSEREEL_RACECHECK
constexpr float kEntriesWorthSharing = 5;  // small, so that the check covers sharing with short sequences
#else
constexpr float kEntriesWorthSharing = 40;
#endif
constexpr int kSortedRounds = 5;   // K and V of so many tiles' heads stay in the L2 cache for all current models
constexpr int kStatSamples = 512;  // sampled tokens: their mean is off by about 1/22 of a deviation, which is enough

/// Hands out aligned pieces of memory. With a null base it only counts bytes.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<uint8_t*>(base)) {}

  template <typename T>
  void take(T*& pointer, int64_t count, bool wanted = true) {
    pointer = wanted && base_ != nullptr ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    if (wanted) used_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  size_t used() const { return used_; }

 private:
  uint8_t* base_;
  size_t used_ = 0;
};

/// Returns the number of first query tiles whose lists the selection writes itself. This requires that selection tiles
/// have as many rows as query tiles, and that no row is text or has a mask.
int listed_tiles(const KernelParams& params, int query_tiles, const KernelTraits& kernel) {
  const Selection& selection = params.selection;
  if (selection.kind != Selection::Kind::predict || selection.rows != kernel.tile_rows || params.causal) return 0;
  return params.text_tokens == 0 ? query_tiles : video_part(params.queries, params.text_tokens) / selection.rows;
}

int mean_records(const KernelParams& params) {
  const int video = video_part(params.keys, params.text_tokens);
  const bool drops = params.selection.kind != Selection::Kind::dense;
  return drops && params.selection.means ? ceil_div(blocks_with_means(params.keys, video), kMeanBlocks) : 0;
}

/// Returns the number of shared choices: one per batch entry, or per (batch, head) if heads have their own. any: false
/// if no head shares one, which gives 0.
int shared_choices(const KernelParams& params, bool any) {
  const Selection& selection = params.selection;
  if (selection.kind != Selection::Kind::predict || !selection.by_error || !any) return 0;
  return params.batch * (selection.heads == nullptr ? 1 : params.heads);
}

/// Returns the number of entries of each tile's list if all lists have the same, known number; otherwise 0.
float entries_of_each(const KernelParams& params, const KernelTraits& kernel, int key_blocks) {
  const Selection& selection = params.selection;
  if (params.causal || params.key_lengths != nullptr) return 0;
  const auto blocks = static_cast<float>(key_blocks);
  if (selection.kind == Selection::Kind::dense) return blocks;
  const bool alike = selection.kind == Selection::Kind::predict && shared_choices(params, selection.any_topk) == 0 &&
                     selection.rows == kernel.tile_rows && selection.heads == nullptr &&
                     selection.all.kind == HeadChoice::Kind::topk && !selection.similarity && params.text_tokens == 0;
  const float means = selection.means ? blocks / kMeanBlocks : 0;
  return alike ? static_cast<float>(selection.all.topk) * blocks + means : 0;
}

/// Returns the tiles that remain after every multiprocessor has had equally many, if idling costs more than sharing
/// them.
Shares shares_of(const KernelParams& params, const Sizes& sizes, const KernelTraits& kernel) {
  const int processors = kernel.shares_tiles ? multiprocessors() : 0;
  if (processors == 0) return {0, 0};
  const int left = sizes.batch_heads * sizes.query_tiles % processors;
  const float idle = static_cast<float>(processors - left) / static_cast<float>(processors);
  const bool worth = left * kMostParts >= processors &&
                     idle * entries_of_each(params, kernel, sizes.key_blocks) > kEntriesWorthSharing;
  return {processors, worth ? left : 0};
}

}  // namespace

int selection_tiles(const KernelParams& params) {
  return ceil_div(video_part(params.queries, params.text_tokens), params.selection.rows);
}

Sizes::Sizes(const KernelParams& params, const KernelTraits& kernel)
    : D(padded_head_dim(params.head_dim)),
      batch_heads(params.batch * params.heads),
      group(params.group),
      kv_heads(params.heads / params.group),
      batch_kv_heads(params.batch * kv_heads),
      query_tiles(ceil_div(params.queries, kernel.tile_rows)),
      query_blocks(query_tiles * (kernel.tile_rows / kRecord)),
      key_blocks(ceil_div(params.keys, kRecord)),
      mean_records(cuda::mean_records(params)),
      key_records(key_blocks + mean_records),
      list_entries(key_blocks + kernel.tile_rows / kRecord * mean_records),
      selection_tiles(cuda::selection_tiles(params)),
      listed_tiles(cuda::listed_tiles(params, query_tiles, kernel)),
      selectable_keys(ceil_div(video_part(params.keys, params.text_tokens), kRecord)),
      pooled_blocks(ceil_div(key_blocks, kPooledKeys) * kPooledKeys),
      budgets(shared_choices(params, params.selection.any_topk)),
      length_sums(shared_choices(params, params.selection.any_block_error)),
      map_words(ceil_div(key_blocks, 32)),
      value_record_bytes(cuda::value_record_bytes(kernel.values, D)),
      shares(shares_of(params, *this, kernel)),
      whole_tiles(batch_heads * query_tiles - shares.tiles),
      sorted_tiles(params.selection.kind == Selection::Kind::dense
                       ? 0
                       : std::min(whole_tiles, kSortedRounds * shares.processors)),
      stat_chunks(std::clamp(384 / (params.batch * all_heads(params)), 1, std::clamp(params.keys / 256, 1, 8))),
      stat_stride(std::max(params.keys / kStatSamples, 1)),
      query_stride(std::max(params.queries / kStatSamples, 1)) {}

Buffers::Buffers(const KernelParams& params, const Sizes& sizes, const KernelTraits& kernel, void* scratch) {
  const int64_t bh = sizes.batch_heads, bk = sizes.batch_kv_heads, D = sizes.D;
  const int64_t q_blocks = bh * sizes.query_blocks, k_blocks = bk * sizes.key_blocks, records = bk * sizes.key_records;
  const bool predicts = params.selection.kind == Selection::Kind::predict;
  const bool by_error = predicts && params.selection.by_error;
  const bool compares = predicts && params.selection.similarity;
  Carver carver(scratch);
  const Prologue& prologue = params.prologue;
  carver.take(choices, params.heads, params.selection.heads != nullptr);
  carver.take(rotary, int64_t{prologue.rotary_tokens} * (params.head_dim / 2), prologue.takes_tables());
  const bool has_records = !kernel.reads_rows || predicts;
  carver.take(q, q_blocks * kRecord * D, has_records);
  carver.take(k, records * kRecord * D, has_records);
  carver.take(v, records * sizes.value_record_bytes, !kernel.reads_rows);
  carver.take(v_null, sizes.value_record_bytes);
  carver.take(q_scale, q_blocks * kRecord);
  carver.take(k_scale, records * kKeyGroups);
  carver.take(longest, bh + bk);
  carver.take(v_scale, bk * D);
  carver.take(v_center, bk * D);
  carver.take(v_outliers, k_blocks);
  carver.take(v_saturated, bk);
  carver.take(v_mean, records * D, kernel.values == ValueFormat::e4m3_less_mean);
  carver.take(q_balance, bk * D);
  carver.take(k_balance, bk * D);
  carver.take(key_mean, bk * D);
  carver.take(q_dot_mean, bh * params.queries, params.lse != nullptr && !kernel.reads_rows);
  carver.take(partials, bh * sizes.stat_chunks * kStatistics * D);
  carver.take(token_moments, int64_t{2} * params.batch * (params.queries + params.keys),
              prologue.normalizes_across_heads());
  carver.take(q_mean, q_blocks * kBlockCells * D, predicts);
  carver.take(q_direction, q_blocks * D, compares);
  carver.take(k_mean, bk * sizes.pooled_blocks * D, predicts);
  carver.take(k_variance, bk * sizes.pooled_blocks * D, by_error);
  carver.take(v_spread, k_blocks, by_error);
  const bool predicts_error = by_error && params.selection.predicts_error;
  carver.take(v_block_mean, k_blocks * D, predicts_error || sizes.length_sums > 0);
  carver.take(output_lengths, bh * sizes.selection_tiles, predicts_error);
  carver.take(k_similarity, k_blocks, compares);
  carver.take(scores, bh * ceil_div(sizes.selection_tiles, 16) * 16 * sizes.selectable_keys,
              predicts && (by_error || sizes.selectable_keys > kernel.max_shared_scores));
  carver.take(budgets, sizes.budgets, sizes.budgets > 0);
  carver.take(length_sums, sizes.length_sums, sizes.length_sums > 0);
  carver.take(bitmap, bh * sizes.selection_tiles * sizes.map_words, predicts);
  carver.take(lists, bh * sizes.query_tiles * sizes.list_entries);
  carver.take(tile_lists, bh * sizes.query_tiles);
  carver.take(next_tile, 1);
  carver.take(class_counts, kLengthClasses);
  carver.take(tile_order, int64_t{kLengthClasses} * sizes.sorted_tiles, sizes.sorted_tiles > 0);
  carver.take(parts, int64_t{sizes.shares.slots()} * part_floats(sizes.D), sizes.shares.tiles > 0);
  const bool makes_rows = kernel.reads_rows && (prologue.norm != Prologue::Norm::none || prologue.rotary_tokens > 0);
  carver.take(q_rows, bh * params.queries * params.head_dim, makes_rows);
  carver.take(k_rows, bk * params.keys * params.head_dim, makes_rows);
  carver.take(mean_keys, bk * sizes.mean_records * kRecord * D, kernel.reads_rows && sizes.mean_records > 0);
  carver.take(mean_values, bk * sizes.mean_records * kRecord * D, kernel.reads_rows && sizes.mean_records > 0);
  bytes = carver.used();
}

}  // namespace sparsereel::attention::cuda
