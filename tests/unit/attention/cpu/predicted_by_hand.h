// Predicts the errors of means by their formulas in double, and makes cases whose blocks differ.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention_case.h"

namespace sparsereel::attention::cpu {

using Vector = std::vector<double>;

/// The predictions for one head. `rank` and `error` are [tiles][blocks of video keys]. Their vectors are empty for a
/// tile that sees no block.
struct ByHand {
  std::vector<Vector> rank, error;
  Vector lengths;            // [tiles], predicted lengths of outputs
  double output_length = 0;  // mean of `lengths`
};

inline Vector mean_of(const View<const float>& view, int64_t b, int64_t h, int64_t first, int64_t count,
                      int64_t head_dim) {
  Vector mean(static_cast<size_t>(head_dim));
  for (int64_t t = first; t < first + count; ++t)
    for (size_t d = 0; d < mean.size(); ++d) mean[d] += view.row(b, t, h)[d] / static_cast<double>(count);
  return mean;
}

/// Returns (x - mean of the token's cell)^2, averaged over `count` tokens from `first` on, for each channel.
inline Vector spread_in_cells(const View<const float>& view, int64_t b, int64_t h, int64_t first, int64_t count,
                              int64_t cell, int64_t head_dim) {
  Vector spread(static_cast<size_t>(head_dim));
  for (int64_t t = 0; t < count; ++t) {
    const int64_t start = t / cell * cell;
    const Vector mean = mean_of(view, b, h, first + start, std::min(cell, count - start), head_dim);
    for (size_t d = 0; d < spread.size(); ++d)
      spread[d] += std::pow(view.row(b, first + t, h)[d] - mean[d], 2) / static_cast<double>(count);
  }
  return spread;
}

inline double length(const Vector& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

inline ByHand predict_by_hand(const KernelParams& p, int64_t rows, int64_t b, int64_t h) {
  const int64_t keys = p.video_keys(b), blocks = blocks_of(keys), queries = video_part(p.queries, p.text_tokens);
  const auto zero = Vector(static_cast<size_t>(p.head_dim));
  std::vector<Vector> k_mean, k_var, v_mean;
  Vector v_deviation, center = zero;
  for (int64_t j = 0; j < blocks; ++j) {
    const int64_t first = j * kBlock, count = std::min(kBlock, keys - first);
    k_mean.push_back(mean_of(p.k, b, h, first, count, p.head_dim));
    k_var.push_back(spread_in_cells(p.k, b, h, first, count, p.mean_cell, p.head_dim));
    v_mean.push_back(mean_of(p.v, b, h, first, count, p.head_dim));
    const Vector v_var = spread_in_cells(p.v, b, h, first, count, p.mean_cell, p.head_dim);
    v_deviation.push_back(std::sqrt(std::accumulate(v_var.begin(), v_var.end(), 0.0)));
    for (size_t d = 0; d < center.size(); ++d) center[d] += v_mean.back()[d] / static_cast<double>(blocks);
  }
  ByHand result;
  const int64_t tiles = (queries + rows - 1) / rows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t first = i * rows, count = std::min(rows, queries - first);
    const int64_t seen = std::min(blocks, blocks_of(p.visible_keys(b, first + count - 1)));
    Vector mass(static_cast<size_t>(seen)), q2 = zero;
    for (int64_t start = 0; start < count; start += 16) {  // groups of 16 queries, each pooled to its mean
      const int64_t size = std::min<int64_t>(16, count - start);
      const double weight = static_cast<double>(size) / static_cast<double>(count);
      const Vector q = mean_of(p.q, b, h, first + start, size, p.head_dim);
      for (size_t d = 0; d < q.size(); ++d) q2[d] += weight * q[d] * q[d];
      Vector share;
      for (size_t j = 0; j < mass.size(); ++j)
        share.push_back(std::exp(p.scale * std::inner_product(q.begin(), q.end(), k_mean[j].begin(), 0.0)));
      const double sum = std::accumulate(share.begin(), share.end(), 0.0);
      for (size_t j = 0; j < mass.size(); ++j) mass[j] += weight * share[j] / sum;
    }
    Vector rank, error, out = zero;
    for (size_t j = 0; j < mass.size(); ++j) {
      Vector away = v_mean[j];
      for (size_t d = 0; d < away.size(); ++d) away[d] -= center[d];
      const double var = p.scale * p.scale * std::inner_product(q2.begin(), q2.end(), k_var[j].begin(), 0.0);
      const double weight = std::sqrt(var) * v_deviation[j] + 0.5 * var * length(away);
      rank.push_back(std::log(mass[j]) + std::log(weight + 1e-30));
      error.push_back(mass[j] * weight);
      for (size_t d = 0; d < out.size(); ++d) out[d] += mass[j] * v_mean[j][d];
    }
    result.rank.push_back(rank);
    result.error.push_back(error);
    result.lengths.push_back(length(out));
    result.output_length += length(out) / static_cast<double>(tiles);
  }
  return result;
}

/// Returns a case in which each block of keys and values has its own mean and spread.
inline Case uneven_case(const Sizes& sizes, int64_t cell = 16) {
  Case c(sizes);
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t t = 0; t < sizes.keys; ++t)
      for (int64_t h = 0; h < sizes.heads; ++h)
        for (int64_t d = 0; d < sizes.head_dim; ++d) {
          const int64_t block = t / kBlock;
          float& k = c.row(c.params.k, b, t, h)[d];
          float& v = c.row(c.params.v, b, t, h)[d];
          k = k * (0.3F + 0.2F * static_cast<float>(block % 5)) + std::sin(static_cast<float>(block * (d + 3)));
          v = v * (0.5F + 0.1F * static_cast<float>(block % 7)) + std::cos(static_cast<float>(block * (d + 1)));
        }
  c.params.mean_cell = cell;
  return c;
}

struct Choice {
  Prediction prediction;
  std::vector<HeadPolicy> heads;
};

inline Choice choose(const Case& c, const HeadPolicy& policy, int64_t rows) {
  Choice choice{.prediction = {}, .heads = std::vector<HeadPolicy>(static_cast<size_t>(c.params.heads), policy)};
  choice.prediction =
      predict_blocks(c.params, {.heads = choice.heads, .rows = rows, .ranking = Ranking::error}, serial);
  return choice;
}

/// Calls f(the head's predictions, tile, the tile's row of the map) for every tile of every head.
template <typename F>
void for_tiles(const Case& c, const BlockMap& map, int64_t rows, const F& f) {
  for (int64_t b = 0; b < c.params.batch; ++b)
    for (int64_t h = 0; h < c.params.heads; ++h) {
      const ByHand hand = predict_by_hand(c.params, rows, b, h);
      for (size_t i = 0; i < hand.rank.size(); ++i) f(hand, i, map.row(b, h, static_cast<int64_t>(i) * rows / kBlock));
    }
}

}  // namespace sparsereel::attention::cpu
