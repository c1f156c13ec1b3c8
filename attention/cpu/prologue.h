// Normalization and rotary embedding of queries or keys in one pass over memory.
#pragma once

#include "attention/call_types.h"
#include "attention/cpu/kernel_params.h"

namespace sparsereel::attention::cpu {

/// One pass of the prologue: out = rotary(norm(in)), both [batch, tokens, heads, head_dim]. The norm is over a head or
/// over all heads of a token.
struct PrologueTask {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  View<const float> in{};
  View<float> out{};
  CallPrologue prologue{};
  RowNormOf<const float*> norm{};  // the prologue's of_queries() or of_keys()
  int64_t text_tokens = 0;         // number of text tokens, the last ones; they use norm.text_weight if it exists
};

/// Runs the task. The layer norm is (x - mean) / sqrt(var + eps), the RMS norm x / sqrt(mean(x^2) + eps); weight and
/// bias follow. The rotary embedding (arXiv 2104.09864) is x cos + turn(x) sin, where turn maps a pair (a, b) to (-b,
/// a).
void run_prologue(const PrologueTask& task, const ParallelFor& parallel);

/// Writes moments [batch, tokens, 2]: the mean (0 for Norm::rms) and 1 / deviation of each token over all its heads.
void find_moments(const PrologueTask& task, float* moments, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
