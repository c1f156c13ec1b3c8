// Measures policies of single heads on the q, k and v of a running transformer, while it computes attention. Stores no
// q, k or v.
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
  /// In all trials, `untuned` says what replaces dropped blocks and how blocks are ranked. `selection_rows` is the
  /// number of queries that share one choice of blocks, except in trials of the untuned policy, which use the number in
  /// `untuned`. `poll` is called between trials; it may throw to end the run.
  HeadTrials(const attention::BlockPolicy& untuned, int64_t selection_rows, std::function<void()> poll);

  /// For each head in the call's layer, measures the policies that the head's search asks for, until the search asks
  /// for no more. Measures on one entry of the batch. The reference is full attention on the same device and dtype, so
  /// the error includes the error of quantization.
  void run(const models::AttentionCall& call, HeadSearches& searches);

 private:
  /// The arguments of attention::attend(). Norm and rotary embedding are already applied to q and k.
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
  attention::Workspace workspace_;  // separate from the run's workspace, which counts calls: trials must not count
};

}  // namespace sparsereel::app::tuning
