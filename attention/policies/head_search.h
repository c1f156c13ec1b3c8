// The search for a head's policy. It names the policy to measure next, and chooses a policy from the results. It uses
// no timer, tensor or GPU: the caller runs the trials and reports their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/call_policy.h"
#include "attention/policies/ladder.h"
#include "attention/policies/trial.h"

namespace sparsereel::attention {

/// Bounds on the relative L1 error of a head, sum |o - o_full| / sum |o_full|. l1 bounds the error of its block
/// selection alone; l2 bounds the error if P.V is skipped as well. These are SpargeAttn's l1 and pv_l1, with the
/// published values.
struct Bounds {
  double l1 = 0.06;
  double l2 = 0.065;
  /// true: the bounds hold for each measured call, as in SpargeAttn; false: for the sums over all calls.
  bool each_call = false;
};

/// The policy chosen for a head, and the error and work that were measured with it.
struct HeadChoice {
  HeadPolicy policy;
  Trial trial;
};

/// The search for one head. For each call it measures the untuned policy, then a Ladder of settings for each way to
/// select blocks, then a Ladder of pv_threshold (bound l2) for the best way. A way is topk or cdf, with or without a
/// similarity threshold, and with a pv_threshold that skips P.V never (bound l1) or often (bound l2). After each call
/// the ways that need the most work are dropped. If Bounds::each_call is set, no way skips P.V, because the error of
/// the selection alone must be within l1 in each call. Only one way then remains after the first call.
class HeadSearch {
 public:
  HeadSearch(const HeadPolicy& untuned, Bounds bounds);

  /// Starts a new attention call. All trials until the next begin_call() use its q, k and v.
  void begin_call();
  /// Returns the policy to measure on this call, or nullopt if the call is done.
  std::optional<HeadPolicy> wanted() const;
  bool wants_untuned() const { return stage_ == Stage::untuned; }  // true if wanted() returns the untuned policy
  /// Takes the result of the trial that wanted() asked for.
  void report(const Trial& trial);

  int64_t calls() const { return calls_; }  // number of calls whose measurements are complete
  /// Returns the policy with the least work within the bounds. A head that saves less than a tenth of the work of full
  /// attention stays dense.
  HeadChoice choice() const;
  /// Returns the untuned policy and its measurement; a dense policy if the untuned policy gave NaN or Inf.
  HeadChoice untuned() const;

  void save(std::vector<double>& numbers) const;
  /// Restores what save() wrote and returns the remaining numbers, as Ladder::restore() does.
  std::span<const double> restore(std::span<const double> numbers);

 private:
  struct Way {
    Selection selection;
    double similarity;
    double pv_threshold;
    Ladder ladder;
    bool dropped = false;
  };
  enum class Stage { untuned, ways, pv, done };

  static HeadPolicy policy_of(const Way& way, size_t point);
  double bound_of(const Way& way) const;
  static double work_of(const Way& way);
  const Way* best_way() const;
  void advance();
  void start_pv();
  void drop_ways();

  HeadPolicy untuned_;
  Bounds bounds_;
  Trial untuned_trial_;
  std::vector<Way> ways_;
  Ladder pv_;
  HeadPolicy pv_base_;  // the policy whose block selection was used when pv_ was measured
  int64_t calls_ = 0;
  Stage stage_ = Stage::done;
  size_t way_ = 0;  // index of the way that is measured in Stage::ways
};

/// Returns the choice of each head's search, [layer][head]. Each choice is within the bounds.
std::vector<std::vector<HeadChoice>> within_bounds(const std::vector<std::vector<HeadSearch>>& heads);

/// Returns within_bounds() if these policies together do no more work than the untuned policy does on the same calls.
/// Otherwise some heads take the untuned policy, whatever its error, until the total work is no larger: first the heads
/// whose choice does the most work beyond that of the untuned policy.
std::vector<std::vector<HeadChoice>> choose(const std::vector<std::vector<HeadSearch>>& heads);

/// Returns the average work of each layer's heads.
std::vector<double> layer_work(const std::vector<std::vector<HeadChoice>>& heads);

}  // namespace sparsereel::attention
