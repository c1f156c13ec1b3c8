// Predicts the error that attention makes if the means of a key block's cells replace the tokens of the block.
#pragma once

#include <limits>
#include <vector>

#include "attention/cpu/pooled.h"

namespace sparsereel::attention::cpu {

/// The number of queries that are averaged for a prediction. It is smaller than a tile: over 8 prompts of the tiny
/// model at 512 x 512 (fp32, tiles of 192), averages of 16 queries instead of 192 raise PSNR from 34.0 to 36.9 dB at
/// topk 0.15, and from 28.8 to 31.3 dB at 0.07.
constexpr int64_t kQueryCell = 16;

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

/// Scores of one head's query tiles for its blocks of video keys, [tiles, blocks].
struct TileScores {
  int64_t tiles = 0, blocks = 0;
  std::vector<float> score;  // natural logarithms; kUnseen if no query of the tile sees the block

  float* row(int64_t tile) { return score.data() + tile * blocks; }
  const float* row(int64_t tile) const { return score.data() + tile * blocks; }
};

/// The video tokens of one head.
struct VideoTokens {
  Grouped queries;       // in tiles
  Grouped keys, values;  // in blocks
  int64_t mean_cell = 16;
  double scale = 1;
};

/// The error of tile i if means replace block j. It is exact to second order in the distances between the scores of the
/// block's keys and the scores of their cells' means:
///   e_ij = mass_ij (sd_ij sdV_j + (var_ij / 2) far_j).
/// The first term is the covariance of scores and values inside cells, the second the curvature of exp. The tile is cut
/// into cells a of kQueryCell queries with mean q_a and share w_a of the tile's queries:
///   mass_ij = sum_a w_a softmax_j(scale q_a . mean(k_j)),
///   var_ij = sd_ij^2 = scale^2 sum_d (sum_a w_a q_a(d)^2) var_j(k_d),
///   sdV_j^2 = sum_d var_j(v_d), far_j = |mean(v_j) - mean over the blocks of mean(v)|.
/// var_j is the variance within the block's cells of mean_cell tokens.
struct MeanErrors {
  TileScores rank;                  // ln(mass_ij) + ln(e_ij / mass_ij + 1e-30), finite even if the mass underflows
  std::vector<double> error;        // e_ij, [tiles, blocks]; 0 if the tile does not see the block
  std::vector<float> tile_lengths;  // [tiles], |sum_j mass_ij mean(v_j)|
  double output_length = 0;         // mean of tile_lengths
};

/// Predicts the errors of all tiles of a head. key_means: group_means() of the keys. seen: number of blocks that each
/// tile sees, [tiles].
MeanErrors predict_mean_errors(const VideoTokens& video, const std::vector<float>& key_means,
                               const std::vector<int64_t>& seen);

}  // namespace sparsereel::attention::cpu
