// The policy search of `tune`: what to measure next on a head, and what to conclude. No timer, no tensor and no GPU:
// the caller runs the trials and reports what they gave.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/policy.h"

namespace sparsereel::attention {

/// Most relative L1, sum |o - o_full| / sum |o_full|, that a head may have: with its block selection alone, and with
/// P.V skipped besides (SpargeAttn's l1 and pv_l1, with the values it gives for CogVideoX).
struct Bounds {
  double l1 = 0.06;
  double l2 = 0.065;
};

/// More than any policy costs that works: the output was NaN or Inf. No profile holds such a head.
constexpr double kMostRelativeL1 = 1e9;

/// What a policy did to a head in one attention call; adds up over calls.
struct Trial {
  double error = 0;  // sum |o - o_full|
  double size = 0;   // sum |o_full|
  double total_blocks = 0, kept_blocks = 0, skipped_pv_blocks = 0;
  double calls = 0;

  double relative_l1() const { return size > 0 ? error / size : error; }
  bool broken() const { return !(relative_l1() <= kMostRelativeL1); }
  /// Share of the QK and PV work that is done, in (0, 1]; 1 without a call.
  double work() const;
  Trial& operator+=(const Trial& other);
};

/// A list of settings from the sparsest to the densest, of which the error falls along the list: finds the sparsest one
/// within a bound. The first call bisects; every later one asks whether the answer still holds and moves it by what the
/// sums over all calls say.
class Ladder {
 public:
  explicit Ladder(size_t points) : trials_(points), edge_(points), high_(points) {}

  void begin_call();
  /// The setting to measure on this call; nothing: the call is done.
  std::optional<size_t> wanted() const;
  /// The result for wanted().
  void report(const Trial& trial, double bound);
  /// The sparsest setting within the bound; nothing where none is.
  std::optional<size_t> found() const;
  const Trial& at(size_t point) const { return trials_[point]; }

  /// Everything that later calls build on, as numbers in a fixed order.
  void save(std::vector<double>& numbers) const;
  /// From what save() wrote; returns what is left. Throws Error where that is too little or makes no sense.
  std::span<const double> restore(std::span<const double> numbers);

 private:
  void settle(size_t edge);

  std::vector<Trial> trials_;  // pooled over calls
  size_t edge_;                // the answer after the last call; trials_.size(): none
  bool bisected_ = false;      // the first call is over
  bool active_ = false;
  size_t low_ = 0, high_;         // of the bisection: what is below low_ fails, high_ passes
  std::optional<size_t> asked_;   // of a later call
  std::optional<size_t> failed_;  // likewise: known to fail
};

/// A head's policy, and what was measured of it.
struct HeadChoice {
  HeadPolicy policy;
  Trial trial;
};

/// The search for one head: the untuned policy, a Ladder for each way to select blocks (topk or cdf; with and without a
/// similarity threshold; P.V never skipped, under l1, or often, under l2), and on the best of them a Ladder of
/// pv_threshold under l2. After each call the worst ways drop out.
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

/// The choices of all heads, [layer][head]. Where they do more work than the untuned policy does on the same calls, the
/// heads that do take the untuned policy instead, those that win most by it first, until the sum is no more.
std::vector<std::vector<HeadChoice>> choose(const std::vector<std::vector<HeadSearch>>& heads);

/// Mean work of each layer's heads.
std::vector<double> layer_work(const std::vector<std::vector<HeadChoice>>& heads);

/// Steps and layers at the start that keep every block.
struct DenseStart {
  int64_t steps = 0;
  int64_t layers = 0;
  bool operator==(const DenseStart&) const = default;
};

/// The search for dense_steps and dense_layers on whole videos: the least work that passes the quality floor, which
/// none may exceed `most_work` for. Asks for the bare profile first; where that fails, it bisects over dense_steps, and
/// then sees whether dense layers in place of some steps do with less.
class DenseSearch {
 public:
  /// layers: layer_work(); steps: of a video.
  DenseSearch(std::vector<double> layers, int64_t steps, double most_work);

  double work(const DenseStart& start) const;
  /// The videos to make next; nothing: the search is over.
  std::optional<DenseStart> wanted() const;
  /// `psnr` decides only among those that fail.
  void report(bool passed, double psnr);
  /// The best so far: of those that pass the one with the least work, else the one with the highest PSNR.
  DenseStart found() const { return found_; }
  bool passed() const { return passed_; }

 private:
  std::optional<DenseStart> with_layers(int64_t layers) const;

  std::vector<double> layers_;
  int64_t steps_;
  double most_work_;
  std::vector<int64_t> ladder_;  // of dense_steps, fewest first, each within most_work_
  std::optional<DenseStart> wanted_ = DenseStart{};
  size_t low_ = 0, high_ = 0;  // of the bisection over ladder_
  DenseStart found_;
  bool passed_ = false;
  double psnr_ = -1;
};

}  // namespace sparsereel::attention
