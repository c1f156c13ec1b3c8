// A trial: one attention call of a head computed with a policy and compared with full attention. Also the saved form of
// a search, which is a list of numbers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sparsereel::attention {

/// The largest relative L1 error of a policy that works. A larger error, or NaN, shows that its output had NaN or Inf;
/// no profile has a head with such a policy.
constexpr double kMostRelativeL1 = 1e9;

/// The measured error and work of a trial, or their sums over several trials.
struct Trial {
  double error = 0;  // sum |o - o_full|
  double size = 0;   // sum |o_full|
  double total_blocks = 0, kept_blocks = 0, skipped_pv_blocks = 0;
  double calls = 0;
  double worst = 0;  // largest relative_l1() of the added calls

  double relative_l1() const { return size > 0 ? error / size : error; }
  bool broken() const { return !(relative_l1() <= kMostRelativeL1); }
  /// Returns the share of the QK and PV work that is done, in (0, 1]; 1 without a call.
  double work() const;
  Trial& operator+=(const Trial& other);

  /// Appends every field to numbers.
  void save(std::vector<double>& numbers) const;
  /// Takes the fields that save() wrote from the front of numbers.
  static Trial restore(std::span<const double>& numbers);
};

/// Takes the first number of a saved search. Throws Error if there is no number left or it is not finite.
double take(std::span<const double>& numbers);

/// Takes a whole number from 0 to `most`. Throws Error for anything else.
size_t take_index(std::span<const double>& numbers, size_t most);

/// Throws the Error for saved numbers that make no sense.
[[noreturn]] void throw_damaged();

}  // namespace sparsereel::attention
