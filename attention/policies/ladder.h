// The sparsest setting within a bound, found in few measurements a call.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "attention/policies/trial.h"

namespace sparsereel::attention {

/// A list of settings from the sparsest to the densest, of which the error falls along the list: finds the sparsest one
/// within a bound. The first call bisects; every later one asks whether the answer still holds and moves it by what all
/// calls say.
class Ladder {
 public:
  /// each_call: no call may exceed the bound, as against the sums over all of them.
  explicit Ladder(size_t points, bool each_call = false)
      : each_call_(each_call), trials_(points), edge_(points), high_(points) {}

  void begin_call();
  /// The setting to measure on this call; nothing: the call is done.
  std::optional<size_t> wanted() const;
  /// The result for wanted().
  void report(const Trial& trial, double bound);
  /// The sparsest setting within the bound; nothing where none is.
  std::optional<size_t> found() const;
  const Trial& at(size_t point) const { return trials_[point]; }
  /// From here on what is measured errs no more than what was: the worst calls count on, sums begin anew.
  void forget_sums();

  /// Everything that later calls build on, as numbers in a fixed order.
  void save(std::vector<double>& numbers) const;
  /// From what save() wrote; returns what is left. Throws Error where that is too little or makes no sense.
  std::span<const double> restore(std::span<const double> numbers);

 private:
  void settle(size_t edge);

  bool each_call_;
  std::vector<Trial> trials_;  // pooled over calls
  size_t edge_;                // the answer after the last call; trials_.size(): none
  bool bisected_ = false;      // the first call is over
  bool active_ = false;
  size_t low_ = 0, high_;         // of the bisection: what is below low_ fails, high_ passes
  std::optional<size_t> asked_;   // of a later call
  std::optional<size_t> failed_;  // likewise: known to fail
};

}  // namespace sparsereel::attention
