// Bisects the settings in the first call. Each later call adds its error to the error over all calls, and moves the
// setting that was found if the bound then requires another one; towards sparser settings by at most one.
#include "attention/policies/ladder.h"

namespace sparsereel::attention {

void Ladder::begin_call() {
  active_ = true;
  failed_.reset();
  if (bisected_) {
    asked_ = edge_ < trials_.size() ? edge_ : edge_ - 1;  // if no setting has passed so far, measure the densest
  } else {
    low_ = 0;
    high_ = trials_.size();
  }
}

std::optional<size_t> Ladder::wanted() const {
  if (!active_) return {};
  if (bisected_) return asked_;
  return low_ + (high_ - low_) / 2;
}

std::optional<size_t> Ladder::found() const {
  return edge_ < trials_.size() ? std::optional(edge_) : std::nullopt;
}

void Ladder::settle(size_t edge) {
  edge_ = edge;
  bisected_ = true;
  active_ = false;
}

void Ladder::report(const Trial& trial, double bound) {
  const size_t point = *wanted();
  trials_[point] += trial;
  const Trial& all = trials_[point];
  const bool passes = all.relative_l1() <= bound && (!each_call_ || all.worst <= bound);
  if (!bisected_) {
    (passes ? high_ : low_) = passes ? point : point + 1;
    if (low_ == high_) settle(high_);
    return;
  }
  if (passes) {
    // A setting's sums grow only in calls that measure it. The sums of two settings can be compared only if they come
    // from almost the same calls, so the answer moves by at most one setting per call towards sparser settings.
    const bool moved = point < edge_;
    if (moved || point == 0 || failed_) return settle(point);
    asked_ = point - 1;
    edge_ = point;
    return;
  }
  if (point < edge_) return settle(edge_);
  failed_ = point;
  if (point + 1 >= trials_.size()) return settle(trials_.size());
  asked_ = point + 1;
  edge_ = point + 1;
}

void Ladder::forget_sums() {
  for (Trial& trial : trials_) trial = {.worst = trial.worst};
}

void Ladder::save(std::vector<double>& numbers) const {
  numbers.push_back(static_cast<double>(edge_));
  numbers.push_back(bisected_ ? 1 : 0);
  for (const Trial& trial : trials_) trial.save(numbers);
}

std::span<const double> Ladder::restore(std::span<const double> numbers) {
  edge_ = take_index(numbers, trials_.size());
  bisected_ = take_index(numbers, 1) == 1;
  active_ = false;
  for (Trial& trial : trials_) trial = Trial::restore(numbers);
  return numbers;
}

}  // namespace sparsereel::attention
