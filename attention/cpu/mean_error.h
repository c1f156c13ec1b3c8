// Predicts how far attention would be off if the mean of a key block stood for its tokens.
#pragma once

#include <vector>

#include "attention/cpu/pooled.h"

namespace sparsereel::attention::cpu {

/// Query tiles of one head against its blocks of video keys, [tiles, blocks].
struct TileScores {
  int64_t tiles = 0, blocks = 0;
  std::vector<float> score;  // natural units; -inf where no query of the tile sees the block

  float* row(int64_t tile) { return score.data() + tile * blocks; }
  const float* row(int64_t tile) const { return score.data() + tile * blocks; }
};

/// e_ij = softmax_j(score_ij) * (sd_ij * sdV_j + var_ij / 2 * far_j): what the covariance of scores and values inside
/// block j adds to the output of tile i, and what the curvature of exp does. var_ij = sd_ij^2, the variance of the
/// scores in the block, = scale^2 sum_d mean_i(q_d^2) var_j(k_d); sdV_j^2 = sum_d var_j(v_d); far_j = |mean(v_j) - mean
/// over the blocks of mean(v)|.
struct MeanErrors {
  TileScores rank;            // score_ij + ln(what the softmax is multiplied by + 1e-30)
  std::vector<double> error;  // e_ij, laid out alike
  double output_length = 0;   // mean over the tiles of |sum_j softmax_j(score_ij) mean(v_j)|
};

/// queries, keys and values: the video tokens of one head, queries in tiles and the others in blocks; key_means of the
/// keys; scores[i][j] = scale * mean(q_i) . mean(k_j).
MeanErrors predict_mean_errors(const Grouped& queries, const Grouped& keys, const Grouped& values,
                               const std::vector<float>& key_means, const TileScores& scores, double scale);

}  // namespace sparsereel::attention::cpu
