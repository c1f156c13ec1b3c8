// Searches a list of settings, from the sparsest to the densest, for the sparsest one whose error is within a bound.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "attention/policies/trial.h"

namespace sparsereel::attention {

/// Finds the sparsest setting whose error is within a bound. The error is assumed to fall along the list. The first
/// call bisects the list. Each later call measures the setting that was found again, and moves to another one if the
/// error over all calls requires that.
class Ladder {
 public:
  /// Searches settings 0 to points - 1. With each_call, the error of every single call must be within the bound, not
  /// only the error over all calls together.
  explicit Ladder(size_t points, bool each_call = false)
      : each_call_(each_call), trials_(points), edge_(points), high_(points) {}

  void begin_call();
  /// Returns the setting to measure on this call, or nullopt if the call is done.
  std::optional<size_t> wanted() const;
  /// Takes the result of measuring the setting that wanted() returned.
  void report(const Trial& trial, double bound);
  /// Returns the sparsest setting within the bound, or nullopt if there is none.
  std::optional<size_t> found() const;
  const Trial& at(size_t point) const { return trials_[point]; }
  /// Clears the sums over calls, but keeps the largest error that each setting had in a call. That error then serves as
  /// an upper bound. So the policies that are measured later must not have larger errors in those calls.
  void forget_sums();

  /// Appends everything that later calls need, as numbers in a fixed order.
  void save(std::vector<double>& numbers) const;
  /// Restores what save() wrote and returns the remaining numbers. Throws Error if numbers are missing or invalid.
  std::span<const double> restore(std::span<const double> numbers);

 private:
  void settle(size_t edge);

  bool each_call_;
  std::vector<Trial> trials_;  // measurements of each setting, summed over calls
  size_t edge_;                // index of found() after the last call; trials_.size() if no setting is within the bound
  bool bisected_ = false;      // true once the first call is over
  bool active_ = false;
  size_t low_ = 0, high_;         // bisection: settings below low_ exceed the bound; high_ and later ones are within it
  std::optional<size_t> asked_;   // after the first call: the setting to measure next
  std::optional<size_t> failed_;  // setting that was found outside the bound in this call
};

}  // namespace sparsereel::attention
