// Adds up trials, and saves and restores the sums.
#include "attention/policies/trial.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hilbert/error.h"

namespace sparsereel::attention {

double Trial::work() const {
  return total_blocks > 0 ? (2 * kept_blocks - skipped_pv_blocks) / (2 * total_blocks) : 1;
}

Trial& Trial::operator+=(const Trial& other) {
  error += other.error;
  size += other.size;
  total_blocks += other.total_blocks;
  kept_blocks += other.kept_blocks;
  skipped_pv_blocks += other.skipped_pv_blocks;
  calls += other.calls;
  worst = std::max({worst, other.worst, other.relative_l1()});
  return *this;
}

void Trial::save(std::vector<double>& numbers) const {
  numbers.insert(numbers.end(), {error, size, total_blocks, kept_blocks, skipped_pv_blocks, calls, worst});
}

Trial Trial::restore(std::span<const double>& numbers) {
  Trial trial;
  for (double* field : {&trial.error, &trial.size, &trial.total_blocks, &trial.kept_blocks, &trial.skipped_pv_blocks,
                        &trial.calls, &trial.worst})
    *field = take(numbers);
  const std::array rising = {0.0, trial.skipped_pv_blocks, trial.kept_blocks, trial.total_blocks};
  if (!std::is_sorted(rising.begin(), rising.end()) || trial.error < 0 || trial.size < 0 || trial.worst < 0)
    throw_damaged();
  return trial;
}

double take(std::span<const double>& numbers) {
  if (numbers.empty() || !std::isfinite(numbers.front())) throw_damaged();
  const double number = numbers.front();
  numbers = numbers.subspan(1);
  return number;
}

size_t take_index(std::span<const double>& numbers, size_t most) {
  const double number = take(numbers);
  if (number < 0 || number > static_cast<double>(most) || number != std::floor(number)) throw_damaged();
  return static_cast<size_t>(number);
}

void throw_damaged() {
  throw bad_input("the saved search is cut short or damaged", "delete it and tune again");
}

}  // namespace sparsereel::attention
