// First-block caching of a denoiser's steps: where the first block adds nearly what it added before, the blocks after
// it are left out, and what they added then is added again. The test is that of ParaAttention's first-block cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/parallel/share.h"
#include "models/request/cache_rule.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// What one denoising by one transformer remembers. A step's first forward decides for its other ones, which are passes
/// of guidance in turn; the rows of a batch decide together: passes that decide each for itself drift apart, and
/// guidance enlarges what they differ in. Ranks decide together too, as one rank with all tokens and passes does; each
/// remembers its own tokens. A copy is cheap: tensors are replaced, never changed.
class StepCache {
 public:
  /// passes: how one rank computes passes that have ranks of their own here.
  explicit StepCache(CacheRule rule, Share share = {}, GuidancePasses passes = GuidancePasses::batched)
      : rule_(rule), share_(std::move(share)), in_turn_(passes == GuidancePasses::in_turn) {}

  /// reused: where the rule knows it (CacheRule::reuses()); a step without one to reuse is computed all the same.
  void begin_step(std::optional<bool> reused = {});

  // Each forward calls these, in this order.
  /// Whether decide() is to be told what the first block added: [B, N, C].
  bool undecided() const { return forward_ == 0; }
  /// Waits for the device, once, unless the step is known to be computed.
  void decide(const at::Tensor& first);
  /// Whether the other blocks are left out.
  bool reuses() const { return reuses_; }
  /// What stands for what they add, where they are left out.
  at::Tensor recall();
  /// What they added, where they ran.
  void remember(const at::Tensor& rest);

  /// By name: what one rank with all tokens and passes remembers. Called by all ranks.
  std::map<std::string, at::Tensor> state() const;
  /// Throws Error naming a tensor that is missing, as where another version wrote the state: steps reused without it
  /// would be others.
  void restore(const std::map<std::string, at::Tensor>& state);

 private:
  /// At the last step that was computed, and at the computed step before; undefined: there was none, or nobody asks.
  struct Memory {
    at::Tensor last, before;
  };
  void update(Memory& memory, const at::Tensor& now) const;
  void add_up_ranks(std::vector<at::Tensor>& sums) const;
  bool is_other_pass() const;
  std::vector<Memory> of_all_ranks(const Memory& memory, int64_t video_tokens) const;
  Memory of_this_rank(const Memory& memory, int64_t video_tokens) const;

  CacheRule rule_;
  Share share_;
  bool in_turn_;
  int64_t computed_ = 0;       // steps
  size_t forward_ = 0;         // of the step
  bool reuses_ = false;        // the step
  std::optional<bool> known_;  // of reuses_, before the first block has run
  double along_ = 0;           // its first block's last change, how many times
  Memory first_;
  std::vector<Memory> rests_;  // one a forward
};

}  // namespace sparsereel::models
