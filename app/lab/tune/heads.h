// Finds a policy for each head. Heads are measured while the prompts' videos are denoised with full attention.
#pragma once

#include <cstdint>
#include <vector>

#include "app/lab/tune/videos.h"

namespace sparsereel::app::tuning {

/// The policies chosen for the heads, and what they cost.
struct FoundHeads {
  std::vector<std::vector<attention::HeadChoice>> choices;  // [layer][head]
  int64_t selection_rows = 0;
  /// The work with the untuned policy and with `choices`, as shares of full attention's work, averaged over the heads.
  double untuned_work = 1, work = 1;
};

class HeadPhase {
 public:
  /// The search for each head starts from the candidate's number of blocks.
  HeadPhase(const TuneContext& context, const Candidate& candidate, VideoRuns& videos);

  /// Measures heads in the planned steps. Returns false if this phase's share of the time budget ended before all steps
  /// were measured. Goes on beyond that share until every head has been measured once. Throws OutOfTime if the whole
  /// budget ends first.
  bool measure();
  FoundHeads found() const;
  /// Returns the candidate's policy with the policies that `found` holds for the heads.
  attention::Policy policy_of(const FoundHeads& found) const;

 private:
  bool measure_prompt(size_t prompt, const std::vector<int64_t>& steps);

  const TuneContext& context_;
  bench::Combination untuned_;  // without a cache or dense steps
  VideoRuns& videos_;
  HeadState& heads_;
  attention::HeadSearch fresh_;
  int64_t selection_rows_;
  double ends_;  // when this phase ends, in seconds since the start of the command
};

}  // namespace sparsereel::app::tuning
