// Normalisation and rotary embedding of queries or keys in one pass over memory.
#pragma once

#include "attention/call_types.h"
#include "attention/cpu/problem.h"

namespace sparsereel::attention::cpu {

/// out = rotary(norm(in)), both [batch, tokens, heads, head_dim]; norm over a head, or over all heads of a token.
struct PrologueTask {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  View<const float> in{};
  View<float> out{};
  CallPrologue prologue{};
  RowNormOf<const float*> norm{};  // the prologue's of_queries() or of_keys()
  int64_t text_tokens = 0;         // the last tokens, which have norm.text_weight if that exists
};

/// layer: (x - mean) / sqrt(var + eps); rms: x / sqrt(mean(x^2) + eps); then weight, bias. Rotary (arXiv 2104.09864):
/// x cos + turn(x) sin, where turn takes a pair (a, b) to (-b, a).
void run_prologue(const PrologueTask& task, const ParallelFor& parallel);

/// moments [batch, tokens, 2]: mean (0 of Norm::rms) and 1 / deviation of a task's tokens across its heads.
void find_moments(const PrologueTask& task, float* moments, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
