// Adds up the computation, the bytes sent and the calls of a step.
#include "app/lab/measure/ranks_cost.h"

#include <algorithm>

namespace sparsereel::app {
namespace {

constexpr double kCallMs = 0.05, kReductionMs = 0.04, kReductions = 2;  // see cost_over_ranks()
constexpr double kBytes = 2;                                            // bytes of an element

/// Returns attention's share of a step's operations. Assumes that a layer with C channels has 12 C^2 weights, as most
/// transformers have.
double attention_share(const VideoCost& video) {
  const double attention = 4 * video.tokens * video.channels, layers = 24 * video.channels * video.channels;
  return attention / (attention + layers);
}

double divided_up(int64_t count, int64_t by) {
  return static_cast<double>((count + by - 1) / by) / static_cast<double>(std::max<int64_t>(count, 1));
}

}  // namespace

RanksCost cost_over_ranks(const VideoCost& video, int64_t gpus, double speed) {
  RanksCost cost;
  cost.passes = video.passes > 1 && gpus % 2 == 0 ? 2 : 1;
  cost.ulysses = gpus / cost.passes;
  cost.most_heads = (video.heads + cost.ulysses - 1) / cost.ulysses;
  const auto ranks = static_cast<double>(cost.ulysses);
  const double passes_each = static_cast<double>(video.passes) / static_cast<double>(cost.passes);
  if (cost.ulysses > 1) {
    // Each of n GPUs has 1/n of the tokens, and sends all heads but its own 1/n to the others: first q, k and v, then
    // the output.
    const double one = video.tokens * video.channels * kBytes / ranks * (1 - 1 / ranks);
    cost.megabytes = 4 * one * passes_each / 1e6;
    const double layer_ms =
        cost.megabytes / speed + (2 * kCallMs + kReductions * kReductionMs) * passes_each;  // MB / (GB/s) = ms
    cost.exchange_ms = layer_ms * static_cast<double>(video.layers);
  }
  if (cost.passes > 1) cost.exchange_ms += kCallMs;  // the passes exchange their predictions once
  if (video.step_ms <= 0) return cost;
  const double attention = attention_share(video);
  const double share = attention * divided_up(video.heads, cost.ulysses) + (1 - attention) / ranks;
  cost.step_ms = video.step_ms / static_cast<double>(cost.passes) * share + cost.exchange_ms;
  cost.speedup = video.step_ms / cost.step_ms;
  return cost;
}

}  // namespace sparsereel::app
