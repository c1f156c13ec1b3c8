// First-block caching of a transformer's steps. If the first block adds nearly the same as before, the other blocks are
// skipped, and what they added before is added again. The test comes from ParaAttention's first-block cache.
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

/// The memory of one denoising by one transformer. The first forward pass of a step decides for the later passes of the
/// step (guidance passes in turn), and the entries of a batch decide together. If each pass decided alone, passes would
/// drift apart, and guidance would amplify the difference. Ranks also decide together, as a single rank with all tokens
/// and passes would. Each rank remembers its own tokens. Copying a cache is cheap, because tensors are replaced, never
/// changed.
class StepCache {
 public:
  /// `passes` says how a single rank would compute the passes that ranks share: as one batch or in turn.
  explicit StepCache(CacheRule rule, SplitGroups share = {}, GuidancePasses passes = GuidancePasses::batched)
      : rule_(rule), share_(std::move(share)), in_turn_(passes == GuidancePasses::in_turn) {}

  /// Begins a step. `reused` is the rule's decision, if known (CacheRule::reuses()). A step is always computed if no
  /// earlier step can be reused.
  void begin_step(std::optional<bool> reused = {});

  // Each forward pass calls these, in this order.
  /// Returns true if decide() needs the first block's residual, [B, N, C].
  bool undecided() const { return forward_ == 0; }
  /// Decides from the first block's residual. Waits once for the device, unless the step is known to be computed.
  void decide(const at::Tensor& first);
  /// Returns true if the other blocks are skipped.
  bool reuses() const { return reuses_; }
  /// Returns the residual to add in place of the skipped blocks.
  at::Tensor recall();
  /// Remembers the other blocks' residual, if they ran.
  void remember(const at::Tensor& rest);

  /// Returns the state by name, as a single rank with all tokens and passes would have it. All ranks call this.
  std::map<std::string, at::Tensor> state() const;
  /// Continues from a state. Throws Error naming a missing tensor, which a state of another version may lack: without
  /// it, reused steps would differ.
  void restore(const std::map<std::string, at::Tensor>& state);

 private:
  /// Residuals of the last computed step and of the one before; undefined if there was no such step, or the rule does
  /// not need its residuals.
  struct Memory {
    at::Tensor last, before;
  };
  void update(Memory& memory, const at::Tensor& now) const;
  void add_up_ranks(std::vector<at::Tensor>& sums) const;
  bool is_other_pass() const;
  std::vector<Memory> of_all_ranks(const Memory& memory, int64_t video_tokens) const;
  Memory of_this_rank(const Memory& memory, int64_t video_tokens) const;

  CacheRule rule_;
  SplitGroups share_;
  bool in_turn_;
  int64_t computed_ = 0;       // number of steps computed so far
  size_t forward_ = 0;         // index of the forward pass within the step
  bool reuses_ = false;        // this step is reused
  std::optional<bool> known_;  // the value of reuses_, if known before the first block has run
  double along_ = 0;           // how many times the first block's last change is contained in its current one
  Memory first_;
  std::vector<Memory> rests_;  // one for each forward pass of a step
};

}  // namespace sparsereel::models
