// Searches a list of settings for the sparsest one whose error is within a bound.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "attention/policies/trial.h"

namespace sparsereel::attention {

/// Finds the sparsest setting whose error is within a bound. The settings are listed from the sparsest to the densest,
/// and the error falls along the list. The first call bisects the list. Each later call measures the answer again, and
/// moves it if the error over all calls requires that.
class Ladder {
 public:
  /// Searches `points` settings. With each_call, every single call must stay within the bound, not only the sums over
  /// all calls.
  explicit Ladder(size_t points, bool each_call = false)
      : each_call_(each_call), trials_(points), edge_(points), high_(points) {}

  void begin_call();
  /// Returns the setting to measure on this call, or nullopt if the call is done.
  std::optional<size_t> wanted() const;
  /// Takes the result for wanted().
  void report(const Trial& trial, double bound);
  /// Returns the sparsest setting within the bound, or nullopt if there is none.
  std::optional<size_t> found() const;
  const Trial& at(size_t point) const { return trials_[point]; }
  /// Clears the sums over calls, but keeps each setting's largest error in a call as an upper bound for these calls. So
  /// later measurements must be of policies that err no more than the measured ones.
  void forget_sums();

  /// Appends everything that later calls build on, as numbers in a fixed order.
  void save(std::vector<double>& numbers) const;
  /// Restores what save() wrote and returns the remaining numbers. Throws Error if numbers are missing or invalid.
  std::span<const double> restore(std::span<const double> numbers);

 private:
  void settle(size_t edge);

  bool each_call_;
  std::vector<Trial> trials_;  // sums over calls
  size_t edge_;                // answer after the last call; trials_.size() if there is none
  bool bisected_ = false;      // true once the first call is over
  bool active_ = false;
  size_t low_ = 0, high_;         // bounds of the bisection: settings below low_ fail, and setting high_ passes
  std::optional<size_t> asked_;   // setting that a later call measures
  std::optional<size_t> failed_;  // setting that is known to fail in this call
};

}  // namespace sparsereel::attention
