// The error of a block's mean, from means and variances alone.
#include "attention/cpu/mean_error.h"

#include <cmath>
#include <limits>

namespace sparsereel::attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kTiny = 1e-30F;  // keeps blocks without any error in order of their scores

/// What a tile's error needs to know of the values of each block.
struct BlockValues {
  std::vector<float> mean;       // [blocks, head_dim]
  std::vector<float> deviation;  // [blocks], length of the standard deviations
  std::vector<float> far;        // [blocks], distance of the mean from the mean of all
};

BlockValues summarise(const Grouped& values) {
  const int64_t blocks = values.groups(), head_dim = values.head_dim;
  BlockValues result{.mean = group_means(values), .deviation = {}, .far = {}};
  const std::vector<float> variance = group_variances(values, result.mean);
  std::vector<double> centre(static_cast<size_t>(head_dim), 0.0);
  for (int64_t j = 0; j < blocks; ++j)
    for (int64_t d = 0; d < head_dim; ++d)
      centre[static_cast<size_t>(d)] += result.mean[static_cast<size_t>(j * head_dim + d)];
  for (double& c : centre) c /= static_cast<double>(blocks);
  for (int64_t j = 0; j < blocks; ++j) {
    double sum = 0, distance = 0;
    for (int64_t d = 0; d < head_dim; ++d) {
      const auto i = static_cast<size_t>(j * head_dim + d);
      const double away = result.mean[i] - centre[static_cast<size_t>(d)];
      sum += variance[i];
      distance += away * away;
    }
    result.deviation.push_back(static_cast<float>(std::sqrt(sum)));
    result.far.push_back(static_cast<float>(std::sqrt(distance)));
  }
  return result;
}

/// softmax[j] of a tile's scores; all zero where it sees nothing.
void softmax(const float* scores, int64_t blocks, std::vector<double>& result) {
  float top = kMinusInfinity;
  for (int64_t j = 0; j < blocks; ++j) top = std::max(top, scores[j]);
  double sum = 0;
  for (int64_t j = 0; j < blocks; ++j) {
    double& p = result[static_cast<size_t>(j)];
    p = scores[j] == kMinusInfinity ? 0 : std::exp(static_cast<double>(scores[j]) - top);
    sum += p;
  }
  if (sum == 0) return;
  for (double& p : result) p /= sum;
}

double output_length(const std::vector<double>& mass, const std::vector<float>& value_means, int64_t head_dim) {
  std::vector<double> out(static_cast<size_t>(head_dim), 0.0);
  for (size_t j = 0; j < mass.size(); ++j) {
    const float* mean = value_means.data() + static_cast<int64_t>(j) * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) out[static_cast<size_t>(d)] += mass[j] * mean[d];
  }
  double square = 0;
  for (const double o : out) square += o * o;
  return std::sqrt(square);
}

}  // namespace

MeanErrors predict_mean_errors(const Grouped& queries, const Grouped& keys, const Grouped& values,
                               const std::vector<float>& key_means, const TileScores& scores, double scale) {
  const int64_t head_dim = keys.head_dim, blocks = scores.blocks;
  const std::vector<float> squares = group_mean_squares(queries), variance = group_variances(keys, key_means);
  const BlockValues value = summarise(values);
  const auto square_scale = static_cast<float>(scale * scale);
  MeanErrors result{.rank = scores, .error = std::vector<double>(scores.score.size()), .output_length = 0};
  std::vector<double> mass(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < scores.tiles; ++i) {
    softmax(scores.row(i), blocks, mass);
    for (int64_t j = 0; j < blocks; ++j) {
      if (scores.row(i)[j] == kMinusInfinity) continue;
      const auto at = static_cast<size_t>(j);
      const float var = square_scale * dot(&squares[static_cast<size_t>(i * head_dim)],
                                           &variance[static_cast<size_t>(j * head_dim)], head_dim);
      const float error = std::sqrt(var) * value.deviation[at] + 0.5F * var * value.far[at];
      result.rank.row(i)[j] += std::log(error + kTiny);
      result.error[static_cast<size_t>(i * blocks + j)] = mass[at] * error;
    }
    result.output_length += output_length(mass, value.mean, head_dim) / static_cast<double>(scores.tiles);
  }
  return result;
}

}  // namespace sparsereel::attention::cpu
