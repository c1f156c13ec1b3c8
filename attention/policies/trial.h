// What a policy did to a head, and how a search is saved: as numbers in a fixed order.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sparsereel::attention {

/// More than any policy costs that works: the output was NaN or Inf. No profile holds such a head.
constexpr double kMostRelativeL1 = 1e9;

/// What a policy did to a head in one attention call; adds up over calls.
struct Trial {
  double error = 0;  // sum |o - o_full|
  double size = 0;   // sum |o_full|
  double total_blocks = 0, kept_blocks = 0, skipped_pv_blocks = 0;
  double calls = 0;
  double worst = 0;  // relative_l1() of the worst of the calls that were added

  double relative_l1() const { return size > 0 ? error / size : error; }
  bool broken() const { return !(relative_l1() <= kMostRelativeL1); }
  /// Share of the QK and PV work that is done, in (0, 1]; 1 without a call.
  double work() const;
  Trial& operator+=(const Trial& other);

  /// Appends every field.
  void save(std::vector<double>& numbers) const;
  /// Takes what save() wrote off the front.
  static Trial restore(std::span<const double>& numbers);
};

/// The first of the numbers of a saved search, taken off. Throws Error where there is none, or none that is finite.
double take(std::span<const double>& numbers);

/// Likewise a whole number from 0 to `most`.
size_t take_index(std::span<const double>& numbers, size_t most);

/// For saved numbers that make no sense.
[[noreturn]] void throw_damaged();

}  // namespace sparsereel::attention
