// Measures policies on the q, k, v of a running denoiser, head by head, inside its attention calls: nothing of them is
// kept.
#pragma once

#include <functional>
#include <vector>

#include "attention/attention.h"
#include "attention/policies/head_search.h"
#include "models/request/attention_run.h"

namespace sparsereel::app::tuning {

using HeadSearches = std::vector<std::vector<attention::HeadSearch>>;  // [layer][head]

class HeadTrials {
 public:
  /// `untuned` says what stands for dropped blocks, and what blocks are ranked by, in all trials. selection_rows:
  /// queries that share one selection in all but the untuned policy's. `poll` is called between trials, and ends the
  /// run by throwing.
  HeadTrials(const attention::BlockPolicy& untuned, int64_t selection_rows, std::function<void()> poll);

  /// Asks each head's search of the call's layer what to measure until it has enough, on one entry of the batch. Full
  /// attention on the same device and dtype is the reference, so what quantisation costs there is part of the error.
  void run(const models::AttentionCall& call, HeadSearches& searches);

 private:
  /// What attention::attend() takes, without a prologue.
  struct Inputs {
    at::Tensor q, k, v;
    attention::Context context;
  };
  static Inputs inputs_of(const models::AttentionCall& call, int64_t entry);
  attention::Trial measure(const Inputs& inputs, int64_t head, const at::Tensor& expected,
                           const attention::HeadPolicy& policy, int64_t selection_rows);

  attention::BlockPolicy untuned_;
  int64_t selection_rows_;
  std::function<void()> poll_;
  attention::Workspace workspace_;  // the run's own keeps its counts to itself
};

}  // namespace sparsereel::app::tuning
