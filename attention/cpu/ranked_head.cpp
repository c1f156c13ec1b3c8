// Averages a head's tokens in groups, ranks its blocks by mass or by error, and removes forced blocks from the
// candidates.
#include "attention/cpu/ranked_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sparsereel::attention::cpu {
namespace {

/// Ranks the blocks of one (batch, head) that has a policy other than dense.
class Ranker {
 public:
  Ranker(const KernelParams& params, const Selector& selector, int64_t b, int64_t h)
      : params_(params),
        policy_(selector.heads[static_cast<size_t>(h)]),
        b_(b),
        keys_(params.video_keys(b)),
        head_{.b = b, .h = h, .rows = selector.rows, .queries = video_part(params.queries, params.text_tokens)},
        tiles_(groups(params.q, h, head_.queries, selector.rows)),
        blocks_(groups(params.k, h / params.group(), keys_, kBlock)),
        key_means_(group_means(blocks_)) {
    for (int64_t tile = 0; tile < tiles_.groups(); ++tile)
      head_.visible.push_back(blocks_of(params.visible_keys(b, last_query(tile))));
  }

  RankedHead run(Ranking ranking) && {
    if (ranking == Ranking::error) {
      rank_by_error();
    } else {
      rank_by_mass();
    }
    take_out_forced();
    return std::move(head_);
  }

 private:
  Grouped groups(const View<const float>& view, int64_t h, int64_t tokens, int64_t size) const {
    return {.view = view, .b = b_, .h = h, .tokens = tokens, .group = size, .head_dim = params_.head_dim};
  }
  int64_t first_query(int64_t tile) const { return tile * head_.rows; }
  int64_t last_query(int64_t tile) const { return std::min(first_query(tile) + head_.rows, head_.queries) - 1; }
  int64_t visible(int64_t tile) const { return head_.visible[static_cast<size_t>(tile)]; }
  /// Returns the number of video key blocks that the tile sees.
  int64_t seen(int64_t tile) const { return std::min(visible(tile), blocks_.groups()); }

  void rank_by_error() {
    const VideoTokens video{.queries = tiles_,
                            .keys = blocks_,
                            .values = groups(params_.v, head_.h / params_.group(), keys_, kBlock),
                            .mean_cell = params_.mean_cell,
                            .scale = params_.scale};
    std::vector<int64_t> seen_by;
    for (int64_t tile = 0; tile < tiles_.groups(); ++tile) seen_by.push_back(seen(tile));
    MeanErrors errors = predict_mean_errors(video, key_means_, seen_by);
    head_.rank = std::move(errors.rank);
    head_.error = std::move(errors.error);
    head_.tile_lengths = std::move(errors.tile_lengths);
    head_.output_length = errors.output_length;
  }

  void rank_by_mass() {
    const std::vector<float> query_means = group_means(tiles_);
    TileScores& scores = head_.rank;
    scores = {.tiles = tiles_.groups(), .blocks = blocks_.groups(), .score = {}};
    scores.score.assign(static_cast<size_t>(scores.tiles * scores.blocks), kUnseen);
    const int64_t head_dim = params_.head_dim;
    for (int64_t i = 0; i < scores.tiles; ++i)
      for (int64_t j = 0; j < seen(i); ++j)
        scores.row(i)[j] = dot(query_means.data() + i * head_dim, key_means_.data() + j * head_dim, head_dim) *
                           static_cast<float>(params_.scale);
  }

  /// Returns the end of the tile's candidates: blocks before it are candidates unless they are forced, and later blocks
  /// are always kept.
  int64_t first_kept(int64_t tile) const {
    // Under a causal mask the blocks on the diagonal are always kept, so that no query loses its own key.
    const int64_t diagonal =
        params_.causal ? std::max<int64_t>(0, params_.visible_keys(b_, first_query(tile)) - 1) / kBlock : visible(tile);
    // A block of fewer than 64 keys has no means, so it is always kept.
    return std::min(diagonal, params_.mean_cell > 0 ? keys_ / kBlock : blocks_.groups());
  }

  void take_out_forced() {
    const std::vector<uint8_t> forced = diverse_groups(blocks_, key_means_, policy_.similarity, true);
    head_.dense = diverse_groups(tiles_, {}, policy_.similarity, false);
    head_.kept.assign(head_.rank.score.size(), 1);
    for (int64_t i = 0; i < head_.tiles(); ++i) {
      const int64_t end = head_.dense[static_cast<size_t>(i)] == 0 ? first_kept(i) : 0;
      for (int64_t j = 0; j < head_.rank.blocks; ++j) {
        if (j >= end || forced[static_cast<size_t>(j)] != 0) head_.rank.row(i)[j] = kUnseen;
        if (head_.is_candidate(i, j)) head_.kept_row(i)[j] = 0;
      }
    }
  }

  const KernelParams& params_;
  const HeadPolicy& policy_;
  const int64_t b_, keys_;  // batch entry; number of video keys
  RankedHead head_;
  const Grouped tiles_, blocks_;
  const std::vector<float> key_means_;
};

}  // namespace

bool RankedHead::is_candidate(int64_t tile, int64_t block) const {
  return rank.row(tile)[block] != kUnseen;
}

int64_t RankedHead::granted(int64_t tile, double topk) const {
  const double share = topk * static_cast<double>(visible[static_cast<size_t>(tile)]);
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(share)));
}

double RankedHead::dropped_error() const {
  double sum = 0;
  for (size_t i = 0; i < error.size(); ++i)
    if (kept[i] == 0) sum += error[i];
  return sum / std::max(output_length, 1e-30);  // avoids 0 / 0 if all values are zero
}

RankedHead rank_head(const KernelParams& params, const Selector& selector, int64_t b, int64_t h) {
  const bool has_video = params.video_keys(b) > 0 && video_part(params.queries, params.text_tokens) > 0;
  if (selector.heads[static_cast<size_t>(h)].dense || !has_video) return {};
  return Ranker(params, selector, b, h).run(selector.ranking);
}

}  // namespace sparsereel::attention::cpu
