// Computes means, variances and similarities of groups of tokens. Loops run along head_dim so that they vectorize.
#include "attention/cpu/pooled.h"

#include <cmath>
#include <numeric>

namespace sparsereel::attention::cpu {
namespace {

/// Returns result[g][d]: the mean of f(row[d], g * head_dim + d) over the rows of group g.
template <typename F>
std::vector<float> mean_over_rows(const Grouped& tokens, const F& f) {
  const int64_t head_dim = tokens.head_dim;
  std::vector<float> result(static_cast<size_t>(tokens.groups() * head_dim), 0.0F);
  for (int64_t g = 0; g < tokens.groups(); ++g) {
    float* sum = result.data() + g * head_dim;
    const float* row = tokens.rows(g);
    for (int64_t t = 0; t < tokens.size_of(g); ++t, row += tokens.stride())
      for (int64_t d = 0; d < head_dim; ++d) sum[d] += f(row[d], g * head_dim + d);
    const float inverse = 1.0F / static_cast<float>(tokens.size_of(g));
    for (int64_t d = 0; d < head_dim; ++d) sum[d] *= inverse;
  }
  return result;
}

/// Returns the mean cosine similarity over all pairs of rows of group g. If `center` is given, it is subtracted from
/// the rows first. The mean equals ||sum of normalized rows||^2 / n^2, so no matrix product is needed.
double self_similarity(const Grouped& tokens, int64_t g, const float* center) {
  const int64_t head_dim = tokens.head_dim;
  std::vector<double> sum(static_cast<size_t>(head_dim), 0.0);
  for (int64_t t = 0; t < tokens.size_of(g); ++t) {
    const float* row = tokens.rows(g) + t * tokens.stride();
    const auto at = [&](int64_t d) { return static_cast<double>(row[d]) - (center != nullptr ? center[d] : 0.0F); };
    double square = 0;
    for (int64_t d = 0; d < head_dim; ++d) square += at(d) * at(d);
    const double inverse = square > 0 ? 1 / std::sqrt(square) : 0;
    for (int64_t d = 0; d < head_dim; ++d) sum[static_cast<size_t>(d)] += at(d) * inverse;
  }
  const double square = std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0);
  const auto n = static_cast<double>(tokens.size_of(g));
  return square / (n * n);
}

/// Returns the mean of all tokens from the means of their groups.
std::vector<float> mean_of_groups(const Grouped& tokens, const std::vector<float>& means) {
  std::vector<double> sum(static_cast<size_t>(tokens.head_dim), 0.0);
  for (int64_t g = 0; g < tokens.groups(); ++g) {
    const auto count = static_cast<double>(tokens.size_of(g));
    for (int64_t d = 0; d < tokens.head_dim; ++d)
      sum[static_cast<size_t>(d)] += count * means[static_cast<size_t>(g * tokens.head_dim + d)];
  }
  std::vector<float> mean(sum.size());
  for (size_t d = 0; d < mean.size(); ++d) mean[d] = static_cast<float>(sum[d] / static_cast<double>(tokens.tokens));
  return mean;
}

}  // namespace

std::vector<float> group_means(const Grouped& tokens) {
  return mean_over_rows(tokens, [](float x, int64_t) { return x; });
}

std::vector<float> average_cells(const Grouped& groups, const Grouped& cells, const std::vector<float>& values) {
  const int64_t head_dim = groups.head_dim;
  std::vector<float> result(static_cast<size_t>(groups.groups() * head_dim), 0.0F);
  for (int64_t c = 0; c < cells.groups(); ++c) {
    const int64_t g = c * cells.group / groups.group;
    const float share = static_cast<float>(cells.size_of(c)) / static_cast<float>(groups.size_of(g));
    float* sum = result.data() + g * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) sum[d] += share * values[static_cast<size_t>(c * head_dim + d)];
  }
  return result;
}

std::vector<float> variances_in_cells(const Grouped& groups, int64_t cell) {
  const Grouped cells = groups.cells_of(cell);
  const std::vector<float> means = group_means(cells);
  const float* mean = means.data();
  const auto squares = mean_over_rows(cells, [mean](float x, int64_t i) { return (x - mean[i]) * (x - mean[i]); });
  return average_cells(groups, cells, squares);
}

std::vector<uint8_t> diverse_groups(const Grouped& tokens, const std::vector<float>& means, double threshold,
                                    bool centered) {
  std::vector<uint8_t> diverse(static_cast<size_t>(tokens.groups()), 0);
  if (threshold < 0) return diverse;  // the similarity is a square, so it cannot be below a negative threshold
  const std::vector<float> center = centered ? mean_of_groups(tokens, means) : std::vector<float>();
  for (size_t g = 0; g < diverse.size(); ++g) {
    const double similarity = self_similarity(tokens, static_cast<int64_t>(g), centered ? center.data() : nullptr);
    diverse[g] = similarity < threshold ? 1 : 0;
  }
  return diverse;
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

}  // namespace sparsereel::attention::cpu
