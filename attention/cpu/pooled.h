// Groups of tokens of one head, each summed up by a few numbers: what block selection reads in place of the tokens.
#pragma once

#include <vector>

#include "attention/cpu/problem.h"

namespace sparsereel::attention::cpu {

/// The first `tokens` tokens of head (b, h), in groups of `group`; the last one may be shorter.
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
};

/// Mean token of each group, [groups, head_dim].
std::vector<float> group_means(const Grouped& tokens);

/// Mean of the squares in each group, [groups, head_dim].
std::vector<float> group_mean_squares(const Grouped& tokens);

/// Population variance in each group, [groups, head_dim]; `means` as group_means() gives them.
std::vector<float> group_variances(const Grouped& tokens, const std::vector<float>& means);

/// [groups]: 1 where the mean cosine similarity within the group, ||sum of L2-normalised rows||^2 / n^2, is below
/// `threshold`; with `centred` the mean of all tokens is taken off first.
std::vector<uint8_t> diverse_groups(const Grouped& tokens, const std::vector<float>& means, double threshold,
                                    bool centred);

float dot(const float* a, const float* b, int64_t n);

}  // namespace sparsereel::attention::cpu
