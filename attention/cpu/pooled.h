// Groups of one head's tokens. Block selection works on a few numbers for each group, such as means, instead of the
// tokens.
#pragma once

#include <vector>

#include "attention/cpu/kernel_params.h"

namespace sparsereel::attention::cpu {

/// The first `tokens` tokens of head (b, h) in groups of `group` tokens; the last group may be shorter.
struct Grouped {
  View<const float> view;
  int64_t b = 0, h = 0;
  int64_t tokens = 0;
  int64_t group = kBlock;
  int64_t head_dim = 0;

  int64_t groups() const { return (tokens + group - 1) / group; }
  int64_t size_of(int64_t g) const { return std::min(group, tokens - g * group); }
  const float* rows(int64_t g) const { return view.row(b, g * group, h); }
  int64_t stride() const { return view.token_stride; }
  /// Returns the same tokens in groups of `size` tokens. `size` must divide `group`.
  Grouped cells_of(int64_t size) const {
    Grouped cells = *this;
    cells.group = size;
    return cells;
  }
};

/// Returns the mean token of each group, [groups, head_dim].
std::vector<float> group_means(const Grouped& tokens);

/// Returns the average of `values` [cells, head_dim] over the cells of each group, weighted by the
/// number of tokens in each cell: [groups, head_dim]. `cells` must come from groups.cells_of().
std::vector<float> average_cells(const Grouped& groups, const Grouped& cells, const std::vector<float>& values);

/// Returns the average over each group of (x - mean of its cell)^2, [groups, head_dim]. A cell has `cell` tokens.
std::vector<float> variances_in_cells(const Grouped& groups, int64_t cell);

/// Returns for each group, [groups], 1 if the mean cosine similarity of its tokens is below `threshold`, otherwise 0.
/// The similarity is ||sum of L2-normalized rows||^2 / n^2. If `centered` is true, the mean of all tokens is subtracted
/// first; it is computed from `means`, the result of group_means(). Otherwise `means` is not read.
std::vector<uint8_t> diverse_groups(const Grouped& tokens, const std::vector<float>& means, double threshold,
                                    bool centered);

float dot(const float* a, const float* b, int64_t n);

}  // namespace sparsereel::attention::cpu
