// The search for a head's policy: what to measure next, and what to conclude. No timer, no tensor and no GPU: the
// caller runs the trials and reports what they gave.
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

/// Most relative L1, sum |o - o_full| / sum |o_full|, that a head may have: with its block selection alone, and with
/// P.V skipped besides (SpargeAttn's l1 and pv_l1, with published values).
struct Bounds {
  double l1 = 0.06;
  double l2 = 0.065;
  bool each_call = false;  // in every call that is measured, as SpargeAttn has it; else in the sums over them
};

/// A head's policy, and what was measured of it.
struct HeadChoice {
  HeadPolicy policy;
  Trial trial;
};

/// The search for one head: the untuned policy, a Ladder for each way to select blocks (topk or cdf; with and without a
/// similarity threshold; P.V never skipped, under l1, or often, under l2), and on the best of them a Ladder of
/// pv_threshold under l2. After each call the worst ways drop out. With each_call no way skips P.V, so that every
/// selection keeps l1 by itself, and the first call leaves one.
class HeadSearch {
 public:
  HeadSearch(const HeadPolicy& untuned, Bounds bounds);

  /// A new attention call, whose q, k and v all trials until the next begin_call() use.
  void begin_call();
  /// What to measure on this call; nothing: the call is done.
  std::optional<HeadPolicy> wanted() const;
  bool wants_untuned() const { return stage_ == Stage::untuned; }  // that wanted() is the untuned policy
  void report(const Trial& trial);

  int64_t calls() const { return calls_; }  // that were done
  /// The least work within the bounds. A head that saves less than a tenth stays dense.
  HeadChoice choice() const;
  /// Dense where the untuned policy broke the output.
  HeadChoice untuned() const;

  void save(std::vector<double>& numbers) const;
  /// As Ladder::restore().
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
  HeadPolicy pv_base_;  // the selection that pv_ was measured with
  int64_t calls_ = 0;
  Stage stage_ = Stage::done;
  size_t way_ = 0;  // of Stage::ways
};

/// What every head's search chose, [layer][head]: none exceeds the bounds.
std::vector<std::vector<HeadChoice>> within_bounds(const std::vector<std::vector<HeadSearch>>& heads);

/// The same, but where these do more work than the untuned policy does on the same calls, the heads that do take the
/// untuned policy instead, whatever its error, those that win most by it first, until the sum is no more.
std::vector<std::vector<HeadChoice>> choose(const std::vector<std::vector<HeadSearch>>& heads);

/// Mean work of each layer's heads.
std::vector<double> layer_work(const std::vector<std::vector<HeadChoice>>& heads);

}  // namespace sparsereel::attention
