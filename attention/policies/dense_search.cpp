// Bisects the number of dense steps, then tries dense layers in their place.
#include "attention/policies/dense_search.h"

#include <algorithm>
#include <array>

namespace sparsereel::attention {
namespace {

constexpr std::array<int64_t, 12> kDenseSteps = {0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20};
constexpr int64_t kMostDenseLayers = 2;

}  // namespace

DenseSearch::DenseSearch(std::vector<double> layers, int64_t steps, double most_work)
    : layers_(std::move(layers)), steps_(steps), most_work_(most_work) {
  for (const int64_t dense : kDenseSteps)
    if (dense < steps && (dense == 0 || work({.steps = dense}) <= most_work_)) ladder_.push_back(dense);
  low_ = 1;
  high_ = ladder_.size();
}

double DenseSearch::work(const DenseStart& start) const {
  double sum = 0;
  for (size_t layer = 0; layer < layers_.size(); ++layer)
    sum += static_cast<int64_t>(layer) < start.layers ? 1 : layers_[layer];
  const double sparse_step = layers_.empty() ? 1 : sum / static_cast<double>(layers_.size());
  const double dense_share = static_cast<double>(start.steps) / static_cast<double>(steps_);
  return dense_share + (1 - dense_share) * sparse_step;
}

std::optional<DenseStart> DenseSearch::wanted() const {
  return wanted_;
}

void DenseSearch::report(bool passed, double psnr) {
  const DenseStart tried = *wanted_;
  const bool better = passed != passed_ ? passed : passed ? work(tried) < work(found_) : psnr > psnr_;
  if (better) {
    found_ = tried;
    passed_ = passed;
    psnr_ = psnr;
  }
  wanted_.reset();
  if (tried == DenseStart{} && passed) return;  // nothing does less work
  if (tried.layers == 0 && tried.steps > 0) {
    const auto place = static_cast<size_t>(std::find(ladder_.begin(), ladder_.end(), tried.steps) - ladder_.begin());
    (passed ? high_ : low_) = passed ? place : place + 1;
  }
  if (tried.layers == 0 && low_ < high_) {
    wanted_ = DenseStart{.steps = ladder_[low_ + (high_ - low_) / 2]};
    return;
  }
  if (tried.layers < kMostDenseLayers) wanted_ = with_layers(tried.layers + 1);
}

/// With that many dense layers, the most dense steps that do less work than what passes so far (or that are allowed).
std::optional<DenseStart> DenseSearch::with_layers(int64_t layers) const {
  std::optional<DenseStart> best;
  for (const int64_t steps : ladder_) {
    const DenseStart start{.steps = steps, .layers = layers};
    if (layers < static_cast<int64_t>(layers_.size()) &&
        (passed_ ? work(start) < work(found_) : work(start) <= most_work_))
      best = start;
  }
  return best;
}

}  // namespace sparsereel::attention
