// A trial: one attention call of a head that was computed with a policy and compared with full attention. This file
// also defines how a search is saved, as a list of numbers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sparsereel::attention {

/// The largest relative L1 error that a usable policy can have. A larger error, or NaN, shows that the policy's output
/// had NaN or Inf; no profile contains such a policy.
constexpr double kMostRelativeL1 = 1e9;

/// The measured error and work of a trial, or their sums over several trials.
struct Trial {
  double error = 0;  // sum |o - o_full|
  double size = 0;   // sum |o_full|
  double total_blocks = 0, kept_blocks = 0, skipped_pv_blocks = 0;
  double calls = 0;
  double worst = 0;  // largest relative_l1() of a single call among those that were added

  double relative_l1() const { return size > 0 ? error / size : error; }
  bool broken() const { return !(relative_l1() <= kMostRelativeL1); }
  /// Returns the share of the QK and PV work that was done, in (0, 1]; 1 if no call was added.
  double work() const;
  Trial& operator+=(const Trial& other);

  /// Appends every field to numbers.
  void save(std::vector<double>& numbers) const;
  /// Removes the fields that save() wrote from the front of numbers and returns the trial.
  static Trial restore(std::span<const double>& numbers);
};

/// Removes the first number of a saved search from `numbers` and returns it. Throws Error if there is none or it is not
/// finite.
double take(std::span<const double>& numbers);

/// Like take(), for a whole number from 0 to `most`. Throws Error for any other number.
size_t take_index(std::span<const double>& numbers, size_t most);

/// Throws the Error that says that a saved search is damaged.
[[noreturn]] void throw_damaged();

}  // namespace sparsereel::attention
