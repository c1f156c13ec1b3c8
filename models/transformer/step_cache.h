// First-block caching of a transformer's steps. If the first block adds nearly the same to the tokens as in the last
// computed step, the other blocks are skipped, and what they added then is added again. The test comes from
// ParaAttention's first-block cache.
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

/// The memory of one transformer during one denoising. A residual is the sum that blocks add to the tokens. The first
/// forward pass of a step decides for the step's later passes (guidance passes in turn), and the entries of a batch
/// decide together. If each pass decided alone, passes would drift apart, and guidance would amplify the difference.
/// Ranks also decide together, as a single rank with all tokens and passes would. Each rank remembers its own tokens. A
/// copy of a cache is cheap: it shares tensors, which are replaced but never changed.
class StepCache {
 public:
  /// `share` holds the groups of ranks that share tokens or passes. `passes` tells how a single rank would compute the
  /// passes that ranks share: as one batch, or in turn.
  explicit StepCache(CacheRule rule, SplitGroups share = {}, GuidancePasses passes = GuidancePasses::batched)
      : rule_(rule), share_(std::move(share)), in_turn_(passes == GuidancePasses::in_turn) {}

  /// Begins a step. `reused` is the rule's decision (CacheRule::reuses()) if it is known before the first block runs. A
  /// step is always computed if no earlier step can be reused.
  void begin_step(std::optional<bool> reused = {});

  // Each forward pass calls the following functions, in this order.
  /// Returns true if this forward pass must call decide() with the first block's residual [B, N, C].
  bool undecided() const { return forward_ == 0; }
  /// Decides from the first block's residual. Waits once for the device, except in a step that is known to be computed.
  void decide(const at::Tensor& first);
  /// Returns true if the other blocks are skipped.
  bool reuses() const { return reuses_; }
  /// Returns the residual that replaces the skipped blocks.
  at::Tensor recall();
  /// Remembers the residual of the other blocks. Call it only if they ran.
  void remember(const at::Tensor& rest);

  /// Returns the state as named tensors, in the form that a single rank with all tokens and passes would have. All
  /// ranks must call this together.
  std::map<std::string, at::Tensor> state() const;
  /// Continues from a state. Throws Error naming a tensor that the state lacks, for example because another version of
  /// this program saved it.
  void restore(const std::map<std::string, at::Tensor>& state);

 private:
  /// Residuals of the last computed step and of the computed step before it. Undefined if there was no such step, or if
  /// the rule does not need the residual.
  struct Memory {
    at::Tensor last, before;
  };
  void update(Memory& memory, const at::Tensor& now) const;
  void add_up_ranks(std::vector<at::Tensor>& sums) const;
  bool is_other_pass() const;
  bool measures() const { return rule_.kind == CacheKind::measured; }
  at::Tensor expected_error(const at::Tensor& change) const;
  void measure(const at::Tensor& rest);
  std::vector<Memory> of_all_ranks(const Memory& memory, int64_t video_tokens) const;
  Memory of_this_rank(const Memory& memory, int64_t video_tokens) const;

  CacheRule rule_;
  SplitGroups share_;
  bool in_turn_;
  int64_t computed_ = 0;       // number of steps computed so far
  size_t forward_ = 0;         // index of the forward pass within the step
  bool reuses_ = false;        // true if this step is reused
  std::optional<bool> known_;  // the value of reuses_, if known before the first block has run
  double along_ = 0;           // how far to extrapolate: see share_of_squares()
  double spent_ = 0;           // sum of the errors expected of the steps that were reused since the last computed step
  /// For kind `measured`, in fp32 on the device, and undefined where there was no such step: the change of the first
  /// block and the factor of the forecast in the last decided step; the ratio of CacheRule::threshold; and this rank's
  /// sums of squares [2] from which the next ratio follows.
  at::Tensor change_, factor_, ratio_, squares_;
  Memory first_;               // residuals of the first block
  std::vector<Memory> rests_;  // residuals of the other blocks, for each forward pass of a step
};

}  // namespace sparsereel::models
