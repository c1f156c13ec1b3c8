// A policy for each head: heads are measured inside full-attention runs of the prompts.
#pragma once

#include <cstdint>
#include <vector>

#include "app/lab/tune/videos.h"

namespace sparsereel::app::tuning {

/// What is chosen for the heads, and what that came of.
struct FoundHeads {
  std::vector<std::vector<attention::HeadChoice>> choices;
  int64_t selection_rows = 0;
  double untuned_work = 1, work = 1;  // shares of full attention's, means over the heads
};

class HeadPhase {
 public:
  /// `candidate`: whose blocks each head starts from.
  HeadPhase(const TuneContext& context, const Candidate& candidate, VideoRuns& videos);

  /// Measures heads in the steps that are planned for it. Returns false where its share of the budget ended it; throws
  /// OutOfTime where a head was not measured even once.
  bool measure();
  FoundHeads found() const;
  /// The candidate's, with the heads' own blocks.
  attention::Policy policy_of(const FoundHeads& found) const;

 private:
  bool measure_prompt(size_t prompt, const std::vector<int64_t>& steps);

  const TuneContext& context_;
  bench::Combination untuned_;  // without a cache or dense steps
  VideoRuns& videos_;
  HeadState& heads_;
  attention::HeadSearch fresh_;
  int64_t selection_rows_;
  double ends_;  // seconds of the budget from which on what was measured will do
};

}  // namespace sparsereel::app::tuning
