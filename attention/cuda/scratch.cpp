// Computes the sizes of a call and lays out its buffers in one piece of memory.
#include "attention/cuda/scratch.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "attention/cuda/device.h"

namespace sparsereel::attention::cuda {
namespace {

constexpr size_t kAlignment = 1024;
constexpr int kMostParts = 8;  // largest number of parts of a tile; small, because one CTA adds up all of them
// Splitting tiles into parts pays if a multiprocessor would otherwise idle for longer than this number of list entries
// takes. The number was measured, and includes a margin.
#ifdef SPARSEREEL_RACECHECK
constexpr float kEntriesWorthSharing = 5;  // small, so that the check covers sharing with short sequences
#else
constexpr float kEntriesWorthSharing = 40;
#endif
// Number of tiles per multiprocessor that run in the order of their lists' lengths. They are so few that K and V of
// their heads stay in the L2 cache in all models.
constexpr int kSortedRounds = 5;
// Tokens in a sample. Their mean is off by about 1/22 of a standard deviation, which is precise enough.
constexpr int kStatSamples = 512;

/// Returns for how many of a head's first query tiles the selection itself writes the lists. It can do so for tiles
/// without rows of text, if it predicts blocks, its tiles have as many rows as query tiles, and the attention is not
/// causal.
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

/// Returns the number of budgets, or of bounds, that heads share: one per batch entry, or one per (batch, head) if
/// heads have their own choices. any: true if any head has such a budget or bound; otherwise the result is 0.
int shared_choices(const KernelParams& params, bool any) {
  const Selection& selection = params.selection;
  if (selection.kind != Selection::Kind::predict || !selection.by_error || !any) return 0;
  return params.batch * (selection.heads == nullptr ? 1 : params.heads);
}

/// Returns the number of entries of each tile's list if that number is known and the same for all lists; otherwise 0.
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

/// Returns how to split the tiles that remain after every multiprocessor has had the same number of tiles. Returns no
/// tiles if idling costs less than splitting. tiles: number of tiles over all (batch, head).
Shares shares_of(const KernelParams& params, const KernelTraits& kernel, int tiles, int key_blocks) {
  const int processors = kernel.shares_tiles ? multiprocessors() : 0;
  if (processors == 0) return {0, 0};
  const int left = tiles % processors;
  const float idle = static_cast<float>(processors - left) / static_cast<float>(processors);
  const bool worth =
      left * kMostParts >= processors && idle * entries_of_each(params, kernel, key_blocks) > kEntriesWorthSharing;
  return {processors, worth ? left : 0};
}

/// A buffer of a call. point(buffers, to) sets the member of Buffers that points to it.
struct Buffer {
  size_t bytes;
  bool needed;
  void (*point)(Buffers& buffers, void* to);
};

/// Describes the buffer to which the member kMember of Buffers points. It has `count` elements.
template <auto kMember>
Buffer buffer(int64_t count, bool needed = true) {
  using Pointer = std::remove_reference_t<decltype(std::declval<Buffers&>().*kMember)>;
  const size_t bytes = static_cast<size_t>(count) * sizeof(std::remove_pointer_t<Pointer>);
  return {(bytes + kAlignment - 1) / kAlignment * kAlignment, needed,
          [](Buffers& buffers, void* to) { buffers.*kMember = static_cast<Pointer>(to); }};
}

/// Returns all buffers in the order in which they lie in memory, with their numbers of elements. A buffer that is not
/// needed gets no memory.
auto buffer_table(const KernelParams& params, const Sizes& sizes, const KernelTraits& kernel) {
  const Selection& selection = params.selection;
  const Prologue& prologue = params.prologue;
  const int64_t bh = sizes.batch_heads, bk = sizes.batch_kv_heads, D = sizes.D;
  const int64_t q_blocks = bh * sizes.query_blocks, k_blocks = bk * sizes.key_blocks, records = bk * sizes.key_records;
  const int64_t tiles = bh * sizes.query_tiles, selection_tiles = bh * sizes.selection_tiles;
  const int64_t pooled = bk * sizes.pooled_blocks * D, means = bk * sizes.mean_records * kRecord * D;
  const bool predicts = selection.kind == Selection::Kind::predict, compares = predicts && selection.similarity;
  const bool by_error = predicts && selection.by_error, predicts_error = by_error && selection.predicts_error;
  const bool in_rows = kernel.reads_rows, in_records = !in_rows || predicts;
  const bool makes_rows = in_rows && (prologue.norm != Prologue::Norm::none || prologue.rotary_tokens > 0);
  return std::array{
      buffer<&Buffers::choices>(params.heads, selection.heads != nullptr),
      buffer<&Buffers::rotary>(int64_t{prologue.rotary_tokens} * (params.head_dim / 2), prologue.takes_tables()),
      buffer<&Buffers::q>(q_blocks * kRecord * D, in_records),
      buffer<&Buffers::k>(records * kRecord * D, in_records),
      buffer<&Buffers::v>(records * sizes.value_record_bytes, !in_rows),
      buffer<&Buffers::v_null>(sizes.value_record_bytes),
      buffer<&Buffers::q_scale>(q_blocks * kRecord),
      buffer<&Buffers::k_scale>(records * kKeyGroups),
      buffer<&Buffers::longest>(bh + bk),
      buffer<&Buffers::v_scale>(bk * D),
      buffer<&Buffers::v_center>(bk * D),
      buffer<&Buffers::v_outliers>(k_blocks),
      buffer<&Buffers::v_saturated>(bk),
      buffer<&Buffers::v_mean>(records * D, kernel.values == ValueFormat::e4m3_less_mean),
      buffer<&Buffers::q_balance>(bk * D),
      buffer<&Buffers::k_balance>(bk * D),
      buffer<&Buffers::key_mean>(bk * D),
      buffer<&Buffers::q_dot_mean>(bh * params.queries, params.lse != nullptr && !in_rows),
      buffer<&Buffers::partials>(bh * sizes.stat_chunks * kStatistics * D),
      buffer<&Buffers::token_moments>(int64_t{2} * params.batch * (params.queries + params.keys),
                                      prologue.normalizes_across_heads()),
      buffer<&Buffers::q_mean>(q_blocks * kBlockCells * D, predicts),
      buffer<&Buffers::q_direction>(q_blocks * D, compares),
      buffer<&Buffers::k_mean>(pooled, predicts),
      buffer<&Buffers::k_variance>(pooled, by_error),
      buffer<&Buffers::v_spread>(k_blocks, by_error),
      buffer<&Buffers::v_block_mean>(k_blocks * D, predicts_error || sizes.length_sums > 0),
      buffer<&Buffers::output_lengths>(selection_tiles, predicts_error),
      buffer<&Buffers::k_similarity>(k_blocks, compares),
      buffer<&Buffers::scores>(bh * ceil_div(sizes.selection_tiles, 16) * 16 * sizes.selectable_keys,
                               predicts && (by_error || sizes.selectable_keys > kernel.max_shared_scores)),
      buffer<&Buffers::budgets>(sizes.budgets, sizes.budgets > 0),
      buffer<&Buffers::length_sums>(sizes.length_sums, sizes.length_sums > 0),
      buffer<&Buffers::bitmap>(selection_tiles * sizes.map_words, predicts),
      buffer<&Buffers::lists>(tiles * sizes.list_entries),
      buffer<&Buffers::tile_lists>(tiles),
      buffer<&Buffers::next_tile>(1),
      buffer<&Buffers::class_counts>(kLengthClasses),
      buffer<&Buffers::tile_order>(int64_t{kLengthClasses} * sizes.sorted_tiles, sizes.sorted_tiles > 0),
      buffer<&Buffers::parts>(int64_t{sizes.shares.slots()} * part_floats(sizes.D), sizes.shares.tiles > 0),
      buffer<&Buffers::q_rows>(bh * params.queries * params.head_dim, makes_rows),
      buffer<&Buffers::k_rows>(bk * params.keys * params.head_dim, makes_rows),
      buffer<&Buffers::mean_keys>(means, in_rows && sizes.mean_records > 0),
      buffer<&Buffers::mean_values>(means, in_rows && sizes.mean_records > 0),
  };
}

}  // namespace

int selection_tiles(const KernelParams& params) {
  return ceil_div(video_part(params.queries, params.text_tokens), params.selection.rows);
}

Sizes::Sizes(const KernelParams& params, const KernelTraits& kernel)
    : D(padded_head_dim(params.head_dim)),
      batch_heads(params.batch * params.heads),
      group(params.group()),
      kv_heads(params.heads_of_keys()),
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
      shares(shares_of(params, kernel, batch_heads * query_tiles, key_blocks)),
      whole_tiles(batch_heads * query_tiles - shares.tiles),
      sorted_tiles(params.selection.kind == Selection::Kind::dense
                       ? 0
                       : std::min(whole_tiles, kSortedRounds * shares.processors)),
      stat_chunks(std::clamp(384 / (params.batch * all_heads(params)), 1, std::clamp(params.keys / 256, 1, 8))),
      stat_stride(std::max(params.keys / kStatSamples, 1)),
      query_stride(std::max(params.queries / kStatSamples, 1)) {}

size_t buffer_bytes(const KernelParams& params, const Sizes& sizes, const KernelTraits& kernel) {
  size_t bytes = 0;
  for (const Buffer& buffer : buffer_table(params, sizes, kernel))
    if (buffer.needed) bytes += buffer.bytes;
  return bytes;
}

Buffers buffers_in(void* scratch, const KernelParams& params, const Sizes& sizes, const KernelTraits& kernel) {
  Buffers buffers{};
  auto* place = static_cast<uint8_t*>(scratch);
  for (const Buffer& buffer : buffer_table(params, sizes, kernel)) {
    if (!buffer.needed) continue;
    buffer.point(buffers, place);
    place += buffer.bytes;
  }
  return buffers;
}

}  // namespace sparsereel::attention::cuda
