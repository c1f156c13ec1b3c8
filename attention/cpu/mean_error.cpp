// Predicts the error of replacing a block by means. Reads only the means and variances of the block's keys and values.
#include "attention/cpu/mean_error.h"

#include <cmath>
#include <limits>

#include "attention/length_sum.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr double kLeastMass = std::numeric_limits<float>::min();

/// The statistics of the values in each block that the prediction needs.
struct BlockValues {
  std::vector<float> mean;       // [blocks, head_dim]
  std::vector<float> deviation;  // [blocks], length of the vector of standard deviations within cells
  std::vector<float> far;        // [blocks], distance between the block's mean and the mean of all blocks
};

BlockValues summarise(const Grouped& values, int64_t cell) {
  const int64_t blocks = values.groups(), head_dim = values.head_dim;
  BlockValues result{.mean = group_means(values), .deviation = {}, .far = {}};
  const std::vector<float> variance = variances_in_cells(values, cell);
  std::vector<double> center(static_cast<size_t>(head_dim), 0.0);
  for (int64_t j = 0; j < blocks; ++j)
    for (int64_t d = 0; d < head_dim; ++d)
      center[static_cast<size_t>(d)] += result.mean[static_cast<size_t>(j * head_dim + d)];
  for (double& c : center) c /= static_cast<double>(blocks);
  for (int64_t j = 0; j < blocks; ++j) {
    double sum = 0, distance = 0;
    for (int64_t d = 0; d < head_dim; ++d) {
      const auto i = static_cast<size_t>(j * head_dim + d);
      const double away = result.mean[i] - center[static_cast<size_t>(d)];
      sum += variance[i];
      distance += away * away;
    }
    result.deviation.push_back(static_cast<float>(std::sqrt(sum)));
    result.far.push_back(static_cast<float>(std::sqrt(distance)));
  }
  return result;
}

/// The statistics of the queries that the prediction needs.
struct QueryCells {
  Grouped cells;
  std::vector<float> mean;     // [cells, head_dim]
  std::vector<float> squares;  // [tiles, head_dim], mean over the tile of the cells' squared means

  explicit QueryCells(const Grouped& tiles) : cells(tiles.cells_of(kQueryCell)), mean(group_means(cells)) {
    std::vector<float> square = mean;
    for (float& x : square) x *= x;
    squares = average_cells(tiles, cells, square);
  }
};

/// Replaces scores by their softmax. A NaN score stays NaN, but does not change the others.
void softmax(std::vector<double>& scores) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double s : scores) top = std::max(top, s);
  for (double& s : scores) {
    s = std::exp(s - top);
    if (!std::isnan(s)) sum += s;
  }
  if (sum == 0) return;
  for (double& s : scores) s /= sum;
}

/// Returns mass_ij (mean_error.h) of tile i for each block j that the tile sees, [seen].
std::vector<double> mass_of_tile(const VideoTokens& video, const QueryCells& queries,
                                 const std::vector<float>& key_means, int64_t tile, int64_t seen) {
  const int64_t head_dim = video.keys.head_dim, size = video.queries.size_of(tile);
  const int64_t first = tile * video.queries.group / kQueryCell;
  std::vector<double> mass(static_cast<size_t>(seen), 0.0), share(mass.size());
  for (int64_t a = first; a < first + (size + kQueryCell - 1) / kQueryCell; ++a) {
    for (int64_t j = 0; j < seen; ++j)
      share[static_cast<size_t>(j)] =
          video.scale * dot(queries.mean.data() + a * head_dim, key_means.data() + j * head_dim, head_dim);
    softmax(share);
    const double weight = static_cast<double>(queries.cells.size_of(a)) / static_cast<double>(size);
    for (size_t j = 0; j < mass.size(); ++j) mass[j] += weight * share[j];
  }
  return mass;
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

MeanErrors predict_mean_errors(const VideoTokens& video, const std::vector<float>& key_means,
                               const std::vector<int64_t>& seen) {
  const int64_t head_dim = video.keys.head_dim, blocks = video.keys.groups(), tiles = video.queries.groups();
  const QueryCells queries(video.queries);
  const std::vector<float> variance = variances_in_cells(video.keys, video.mean_cell);
  const BlockValues value = summarise(video.values, video.mean_cell);
  const auto size = static_cast<size_t>(tiles * blocks);
  MeanErrors result{.rank = {.tiles = tiles, .blocks = blocks, .score = std::vector<float>(size, kUnseen)},
                    .error = std::vector<double>(size, 0.0),
                    .tile_lengths = {},
                    .output_length = 0};
  for (int64_t i = 0; i < tiles; ++i) {
    const std::vector<double> mass = mass_of_tile(video, queries, key_means, i, seen[static_cast<size_t>(i)]);
    for (size_t j = 0; j < mass.size(); ++j) {
      const double var =
          video.scale * video.scale *
          dot(queries.squares.data() + i * head_dim, variance.data() + static_cast<int64_t>(j) * head_dim, head_dim);
      const double error = std::sqrt(var) * value.deviation[j] + var / 2 * value.far[j];
      result.rank.row(i)[j] =
          static_cast<float>(std::log(std::max(mass[j], kLeastMass)) + std::log(error + kLeastError));
      result.error[static_cast<size_t>(i * blocks) + j] = mass[j] * error;
    }
    const double length = output_length(mass, value.mean, head_dim);
    result.tile_lengths.push_back(static_cast<float>(length));
    result.output_length += length / static_cast<double>(tiles);
  }
  return result;
}

}  // namespace sparsereel::attention::cpu
