// Block selection: pooled means, self-similarity, and the topk or cdf choice for each row of query tiles.
#include "attention/cpu/selection.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace sparsereel::attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Means over groups of tokens, and which of the groups are too diverse to be represented by one.
struct Pooled {
  std::vector<float> mean;      // [groups, head_dim]
  std::vector<uint8_t> forced;  // [groups], similarity below the threshold
};

/// Column mean over `tokens` rows that are `stride` apart, into mean[head_dim].
void mean_of_rows(const float* rows, int64_t stride, int64_t tokens, int64_t head_dim, float* mean) {
  std::fill(mean, mean + head_dim, 0.0F);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = rows + t * stride;
    for (int64_t d = 0; d < head_dim; ++d) mean[d] += row[d];
  }
  const float inverse = tokens > 0 ? 1.0F / static_cast<float>(tokens) : 0.0F;
  for (int64_t d = 0; d < head_dim; ++d) mean[d] *= inverse;
}

/// Mean of the Gram matrix of the L2-normalised rows (less `centre`, if given) = ||sum of them||^2 / n^2: no matmul.
double self_similarity(const float* rows, int64_t stride, int64_t tokens, int64_t head_dim, const float* centre) {
  std::vector<double> sum(static_cast<size_t>(head_dim), 0.0);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = rows + t * stride;
    const auto at = [&](int64_t d) { return static_cast<double>(row[d]) - (centre != nullptr ? centre[d] : 0.0F); };
    double square = 0;
    for (int64_t d = 0; d < head_dim; ++d) square += at(d) * at(d);
    const double inverse = square > 0 ? 1 / std::sqrt(square) : 0;
    for (int64_t d = 0; d < head_dim; ++d) sum[static_cast<size_t>(d)] += at(d) * inverse;
  }
  const double square = std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0);
  const auto n = static_cast<double>(tokens);
  return square / (n * n);
}

/// Mean of all the tokens, from the means of their groups.
std::vector<float> mean_of_groups(const Pooled& pooled, int64_t tokens, int64_t group, int64_t head_dim) {
  std::vector<double> sum(static_cast<size_t>(head_dim), 0.0);
  for (int64_t begin = 0, g = 0; begin < tokens; begin += group, ++g) {
    const auto count = static_cast<double>(std::min(group, tokens - begin));
    for (int64_t d = 0; d < head_dim; ++d)
      sum[static_cast<size_t>(d)] += count * pooled.mean[static_cast<size_t>(g * head_dim + d)];
  }
  std::vector<float> mean(static_cast<size_t>(head_dim));
  for (size_t d = 0; d < mean.size(); ++d) mean[d] = static_cast<float>(sum[d] / static_cast<double>(tokens));
  return mean;
}

/// Pools tokens [0, tokens) of one head in groups; keys (centred) have their mean taken off before similarity.
Pooled pool(const View<const float>& view, int64_t b, int64_t h, int64_t tokens, int64_t group, int64_t head_dim,
            double similarity, bool centred) {
  const int64_t groups = (tokens + group - 1) / group;
  Pooled pooled{.mean = std::vector<float>(static_cast<size_t>(groups * head_dim)),
                .forced = std::vector<uint8_t>(static_cast<size_t>(groups), 0)};
  const auto size_of = [&](int64_t g) { return std::min(group, tokens - g * group); };
  for (int64_t g = 0; g < groups; ++g)
    mean_of_rows(view.row(b, g * group, h), view.token_stride, size_of(g), head_dim, &pooled.mean[g * head_dim]);
  if (similarity < 0) return pooled;  // a squared norm is never below: nothing can be forced
  const std::vector<float> centre = centred ? mean_of_groups(pooled, tokens, group, head_dim) : std::vector<float>();
  for (int64_t g = 0; g < groups; ++g) {
    pooled.forced[g] = self_similarity(view.row(b, g * group, h), view.token_stride, size_of(g), head_dim,
                                       centred ? centre.data() : nullptr) < similarity
                           ? 1
                           : 0;
  }
  return pooled;
}

float dot(const float* a, const float* b, int64_t n) {
  float lanes[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t j = 0; j < 8; ++j) lanes[j] += a[i + j] * b[i + j];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Turns scores (-inf: not a candidate) into the chosen blocks. order is scratch.
class Chooser {
  /// Higher score first, ties by index; a NaN score goes first, so that a broken block is computed and seen.
  static auto better(const std::vector<float>& scores) {
    return [&scores](int32_t a, int32_t b) {
      const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
      if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
      return x > y || (!(y > x) && a < b);
    };
  }

 public:
  Chooser(const HeadPolicy& policy, int64_t key_blocks) : policy_(policy), kept_(static_cast<size_t>(key_blocks)) {}

  /// Marks the chosen blocks in row[0 .. scores.size()); visible: how many blocks dense attention would compute.
  void choose(std::vector<float>& scores, int64_t visible, uint8_t* row) {
    order_.clear();
    for (size_t j = 0; j < scores.size(); ++j)
      if (scores[j] != kMinusInfinity) order_.push_back(static_cast<int32_t>(j));
    if (order_.empty()) return;
    const size_t count = policy_.selection == Selection::topk ? best_count(visible) : sort_and_count_mass(scores);
    if (policy_.selection == Selection::topk && count < order_.size())
      std::nth_element(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(count), order_.end(), better(scores));
    for (size_t i = 0; i < count; ++i) row[order_[i]] = 1;
  }

 private:
  size_t best_count(int64_t visible) const {
    const auto wanted = static_cast<size_t>(std::floor(policy_.topk * static_cast<double>(visible)));
    return std::min(std::max<size_t>(1, wanted), order_.size());
  }

  size_t sort_and_count_mass(const std::vector<float>& scores) {
    if (policy_.cdf >= 1) return order_.size();
    std::sort(order_.begin(), order_.end(), better(scores));
    const double top = scores[static_cast<size_t>(order_[0])];
    double total = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      kept_[i] = std::exp(scores[static_cast<size_t>(order_[i])] - top);
      total += kept_[i];
    }
    double mass = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      mass += kept_[i];
      if (mass >= policy_.cdf * total) return i + 1;
    }
    return order_.size();
  }

  const HeadPolicy& policy_;
  std::vector<int32_t> order_;
  std::vector<double> kept_;  // mass of each candidate, in order
};

/// Selection for one (batch, head).
class HeadSelection {
 public:
  HeadSelection(const Problem& problem, const HeadPolicy& policy, int64_t selection_rows, int64_t b, int64_t h)
      : problem_(problem),
        policy_(policy),
        rows_(selection_rows),
        b_(b),
        h_(h),
        video_keys_(video_part(problem.keys, problem.text_tokens)),
        video_queries_(video_part(problem.queries, problem.text_tokens)) {}

  /// In: the visible blocks. Out: the blocks to compute.
  void apply(BlockMap& map) const {
    if (policy_.dense || video_queries_ == 0) return;
    const int64_t keys = std::min(problem_.key_length(b_), video_keys_);
    if (keys == 0) return;
    const Pooled k = pool(problem_.k, b_, h_, keys, kBlock, problem_.head_dim, policy_.similarity, true);
    const Pooled q = pool(problem_.q, b_, h_, video_queries_, rows_, problem_.head_dim, policy_.similarity, false);
    Chooser chooser(policy_, map.key_blocks);
    std::vector<uint8_t> chosen(static_cast<size_t>(map.key_blocks));
    for (size_t tile = 0; tile < q.forced.size(); ++tile) {
      if (q.forced[tile] != 0) continue;
      const int64_t first = static_cast<int64_t>(tile) * rows_, last = std::min(first + rows_, video_queries_) - 1;
      select_row(k, &q.mean[tile * static_cast<size_t>(problem_.head_dim)], first, last, chooser, chosen);
      for (int64_t block = first / kBlock; block <= last / kBlock; ++block) {
        uint8_t* row = map.row(b_, h_, block);
        for (int64_t j = 0; j < map.key_blocks; ++j) row[j] &= chosen[static_cast<size_t>(j)];
      }
    }
  }

 private:
  /// Tokens in front of the first block that counts as text.
  static int64_t video_part(int64_t tokens, int64_t text_tokens) {
    return text_tokens == 0 ? tokens : (tokens - text_tokens) / kBlock * kBlock;
  }

  void select_row(const Pooled& k, const float* q_mean, int64_t first, int64_t last, Chooser& chooser,
                  std::vector<uint8_t>& chosen) const {
    const int64_t visible = blocks_of(problem_.visible_keys(b_, last));
    // Under a causal mask the blocks on the diagonal are kept, so that no query loses its own key.
    const int64_t diagonal =
        problem_.causal ? std::max<int64_t>(0, problem_.visible_keys(b_, first) - 1) / kBlock : visible;
    const int64_t candidates = std::min({visible, diagonal, static_cast<int64_t>(k.forced.size())});
    std::fill(chosen.begin(), chosen.end(), uint8_t{1});
    std::vector<float> scores(static_cast<size_t>(candidates), kMinusInfinity);
    for (int64_t j = 0; j < candidates; ++j) {
      if (k.forced[static_cast<size_t>(j)] != 0) continue;
      chosen[static_cast<size_t>(j)] = 0;
      scores[static_cast<size_t>(j)] =
          dot(q_mean, &k.mean[static_cast<size_t>(j * problem_.head_dim)], problem_.head_dim) *
          static_cast<float>(problem_.scale);
    }
    chooser.choose(scores, visible, chosen.data());
  }

  const Problem& problem_;
  const HeadPolicy& policy_;
  const int64_t rows_, b_, h_;
  const int64_t video_keys_, video_queries_;
};

/// Key blocks that the row of query blocks i sees.
int64_t visible_in_row(const Problem& problem, int64_t b, int64_t i) {
  const int64_t last_query = std::min((i + 1) * kBlock, problem.queries) - 1;
  return blocks_of(problem.visible_keys(b, last_query));
}

}  // namespace

BlockMap visible_blocks(const Problem& problem) {
  BlockMap map(problem.batch, problem.heads, problem.query_blocks(), problem.key_blocks(), true);
  keep_visible(problem, map);
  return map;
}

void keep_visible(const Problem& problem, BlockMap& map) {
  for (int64_t b = 0; b < map.batch; ++b) {
    for (int64_t i = 0; i < map.query_blocks; ++i) {
      const int64_t visible = visible_in_row(problem, b, i);
      for (int64_t h = 0; h < map.heads; ++h)
        std::fill(map.row(b, h, i) + visible, map.row(b, h, i) + map.key_blocks, uint8_t{0});
    }
  }
}

int64_t count_visible_blocks(const Problem& problem) {
  int64_t blocks = 0;
  for (int64_t b = 0; b < problem.batch; ++b)
    for (int64_t i = 0; i < problem.query_blocks(); ++i) blocks += visible_in_row(problem, b, i);
  return blocks * problem.heads;
}

int64_t count_blocks(const BlockMap& map) {
  return std::accumulate(map.bits.begin(), map.bits.end(), int64_t{0});
}

BlockMap predict_blocks(const Problem& problem, std::span<const HeadPolicy> heads, int64_t selection_rows,
                        const ParallelFor& parallel) {
  BlockMap map = visible_blocks(problem);
  parallel(problem.batch * problem.heads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / problem.heads, h = i % problem.heads;
      HeadSelection(problem, heads[static_cast<size_t>(h)], selection_rows, b, h).apply(map);
    }
  });
  return map;
}

}  // namespace sparsereel::attention::cpu
