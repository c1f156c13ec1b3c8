// Selects blocks in two phases: ranks the blocks of every head, then chooses.
#include "attention/cpu/selection.h"

#include <numeric>
#include <vector>

#include "attention/cpu/budget.h"
#include "attention/cpu/tile_choice.h"

namespace sparsereel::attention::cpu {
namespace {

/// Returns the number of key blocks that query block i sees.
int64_t visible_in_row(const KernelParams& params, int64_t b, int64_t i) {
  const int64_t last_query = std::min((i + 1) * kBlock, params.queries) - 1;
  return blocks_of(params.visible_keys(b, last_query));
}

}  // namespace

BlockMap visible_blocks(const KernelParams& params) {
  BlockMap map(params.batch, params.heads, params.query_blocks(), params.key_blocks(), true);
  keep_visible(params, map);
  return map;
}

void keep_visible(const KernelParams& params, BlockMap& map) {
  for (int64_t b = 0; b < map.batch; ++b) {
    for (int64_t i = 0; i < map.query_blocks; ++i) {
      const int64_t visible = visible_in_row(params, b, i);
      for (int64_t h = 0; h < map.heads; ++h)
        std::fill(map.row(b, h, i) + visible, map.row(b, h, i) + map.key_blocks, uint8_t{0});
    }
  }
}

int64_t count_visible_blocks(const KernelParams& params) {
  const bool alike = params.key_lengths == nullptr;  // true if all batch entries see the same blocks
  int64_t blocks = 0;
  for (int64_t b = 0; b < (alike ? 1 : params.batch); ++b)
    for (int64_t i = 0; i < params.query_blocks(); ++i) blocks += visible_in_row(params, b, i);
  return blocks * params.heads * (alike ? params.batch : 1);
}

int64_t count_blocks(const BlockMap& map) {
  return std::accumulate(map.bits.begin(), map.bits.end(), int64_t{0});
}

int64_t count_mean_blocks(const KernelParams& params, const BlockMap& map) {
  int64_t blocks = 0;
  for (int64_t b = 0; params.mean_cell > 0 && b < map.batch; ++b)
    for (int64_t h = 0; h < map.heads; ++h)
      for (int64_t i = 0; i < map.query_blocks; ++i) {
        const uint8_t* row = map.row(b, h, i);
        const auto dropped = std::count(row, row + params.blocks_with_means(b, i), uint8_t{0});
        blocks += blocks_of(dropped * (kBlock / params.mean_cell));
      }
  return blocks;
}

namespace {

/// Returns the number of heads that choose together: all heads of a batch entry, or one.
int64_t heads_of_a_budget(const Selector& selector) {
  const HeadPolicy& first = selector.heads.front();
  const bool shared =
      (selector.part == nullptr || selector.part->alike) && selector.ranking == Ranking::error &&
      (first.selection == Selection::topk || first.selection == Selection::block_error) &&
      std::all_of(selector.heads.begin(), selector.heads.end(), [&](const HeadPolicy& head) { return head == first; });
  return shared ? static_cast<int64_t>(selector.heads.size()) : 1;
}

void choose(const HeadPolicy& policy, const Selector& selector, std::span<RankedHead> heads) {
  if (selector.ranking == Ranking::error && policy.selection == Selection::topk) {
    spend_budget(heads, policy.topk, selector.part);
  } else if (policy.selection == Selection::block_error) {
    keep_above_bound(heads, policy.block_error, selector.part);
  } else {
    for (RankedHead& head : heads) choose_in_tiles(policy, head);
  }
}

/// Clears in `map` the blocks that the head's tiles drop.
void drop_blocks(const RankedHead& head, BlockMap& map) {
  for (int64_t tile = 0; tile < head.tiles(); ++tile) {
    const uint8_t* kept = head.kept_row(tile);
    const int64_t first = tile * head.rows, end = std::min(first + head.rows, head.queries);
    for (int64_t block = first / kBlock; block < blocks_of(end); ++block) {
      uint8_t* row = map.row(head.b, head.h, block);
      for (int64_t j = 0; j < head.rank.blocks; ++j) row[j] &= kept[j];
    }
  }
}

}  // namespace

Prediction predict_blocks(const KernelParams& params, const Selector& selector, const ParallelFor& parallel) {
  Prediction result{.map = visible_blocks(params), .sum_error = 0, .tiles = 0};
  const int64_t heads = params.batch * params.heads, together = heads_of_a_budget(selector);
  std::vector<RankedHead> ranked(static_cast<size_t>(heads));
  parallel(heads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      ranked[static_cast<size_t>(i)] = rank_head(params, selector, i / params.heads, i % params.heads);
  });
  const auto choose_all = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto group = std::span(ranked).subspan(static_cast<size_t>(i * together), static_cast<size_t>(together));
      choose(selector.heads[static_cast<size_t>(i * together % params.heads)], selector, group);
      for (const RankedHead& head : group) drop_blocks(head, result.map);
    }
  };
  // The processes that share the heads sum their counts for one batch entry after the other, so all must take the batch
  // entries in the same order.
  if (selector.part != nullptr && selector.part->shares_budget()) {
    choose_all(0, heads / together);
  } else {
    parallel(heads / together, choose_all);
  }
  if (selector.ranking != Ranking::error) return result;
  for (const RankedHead& head : ranked) {  // in order, so that the sum does not depend on the threads
    result.sum_error += head.dropped_error();
    result.tiles += head.tiles();
  }
  return result;
}

}  // namespace sparsereel::attention::cpu
