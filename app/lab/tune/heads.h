// Finds a policy for each head: heads are measured inside full-attention runs of the prompts.
#pragma once

#include <cstdint>
#include <vector>

#include "app/lab/tune/videos.h"

namespace sparsereel::app::tuning {

/// The choices for the heads and their cost.
struct FoundHeads {
  std::vector<std::vector<attention::HeadChoice>> choices;
  int64_t selection_rows = 0;
  double untuned_work = 1, work = 1;  // shares of full attention's work, averaged over the heads
};

class HeadPhase {
 public:
  /// Each head starts from the blocks of `candidate`.
  HeadPhase(const TuneContext& context, const Candidate& candidate, VideoRuns& videos);

  /// Measures heads in the planned steps. Returns false if the part of the time budget for this phase ended it. Throws
  /// OutOfTime if a head was not measured even once.
  bool measure();
  FoundHeads found() const;
  /// Returns the candidate's policy with the heads' own blocks.
  attention::Policy policy_of(const FoundHeads& found) const;

 private:
  bool measure_prompt(size_t prompt, const std::vector<int64_t>& steps);

  const TuneContext& context_;
  bench::Combination untuned_;  // without a cache or dense steps
  VideoRuns& videos_;
  HeadState& heads_;
  attention::HeadSearch fresh_;
  int64_t selection_rows_;
  double ends_;  // seconds of the budget after which the measurements so far must suffice
};

}  // namespace sparsereel::app::tuning
