// Normalisation and rotary embedding of queries or keys in one pass over memory.
#pragma once

#include "attention/cpu/problem.h"

namespace sparsereel::attention::cpu {

enum class Norm { none, layer, rms };

/// out = rotary(norm(in)), both [batch, tokens, heads, head_dim]; norm over a head, or over all heads of a token.
struct PrologueTask {
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  View<const float> in{};
  View<float> out{};
  Norm norm = Norm::none;
  bool across_heads = false;
  double eps = 0;
  const float* weight = nullptr;  // [head_dim], or [heads * head_dim] across heads; null: ones
  const float* bias = nullptr;    // alike; null: zeros
  int64_t rotary_tokens = 0;      // the first tokens, which are rotated
  const float* cos = nullptr;     // [rotary_tokens, head_dim]
  const float* sin = nullptr;
  bool interleaved = true;             // pairs (2i, 2i + 1), else (i, i + head_dim / 2)
  int64_t text_tokens = 0;             // the last tokens, whose
  const float* text_weight = nullptr;  // weights are these [head_dim]; null: those of all
  const float* positions = nullptr;    // in place of cos and sin: [rotary_tokens, 4], of which three are read, and
  const float* frequencies = nullptr;  // [heads, 3, head_dim / 2]; their product is the angle. Interleaved pairs
  const float* moments = nullptr;  // [batch, tokens, 2], find_moments() of more heads, for a norm across them; null:
                                   // those of these heads
};

/// layer: (x - mean) / sqrt(var + eps); rms: x / sqrt(mean(x^2) + eps); then weight, bias. Rotary (arXiv 2104.09864):
/// x cos + turn(x) sin, where turn takes a pair (a, b) to (-b, a).
void run_prologue(const PrologueTask& task, const ParallelFor& parallel);

/// moments [batch, tokens, 2]: mean (0 of Norm::rms) and 1 / deviation of a task's tokens across its heads.
void find_moments(const PrologueTask& task, float* moments, const ParallelFor& parallel);

}  // namespace sparsereel::attention::cpu
