// Defines the policies that the search tries, and chooses one of them for each head.
#include "attention/policies/head_search.h"

#include <algorithm>
#include <array>

namespace sparsereel::attention {
namespace {

/// A head that would save a smaller share of the work computes every block, as with SpargeAttn.
constexpr double kLeastGain = 0.1;

// The settings of the ladders, from the sparsest to the densest. They are closer together where the error changes fast:
// near 0 for topk, near 1 for cdf.
constexpr std::array<double, 20> kTopk = {0.02, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.35, 0.4,
                                          0.45, 0.5,  0.55, 0.6,  0.65, 0.7, 0.75, 0.8, 0.85, 0.9};
constexpr std::array<double, 20> kCdf = {0.3, 0.4,  0.5,  0.6,   0.65, 0.7,  0.75,  0.8,  0.84,  0.87,
                                         0.9, 0.92, 0.94, 0.955, 0.97, 0.98, 0.985, 0.99, 0.995, 0.999};
constexpr std::array<double, 14> kPvThreshold = {0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 12, 15};
constexpr std::array<double, 2> kSimilarity = {-0.1, 0.35};
constexpr double kNeverSkips = 50, kSkipsOften = 2;  // pv_threshold in log2 units

// Number of ways to select blocks (see HeadSearch) that remain after the first call, and after the second.
constexpr size_t kAfterFirst = 4, kAfterSecond = 2;

HeadChoice dense_choice() {
  HeadChoice dense;
  dense.policy.dense = true;
  return dense;
}

}  // namespace

HeadSearch::HeadSearch(const HeadPolicy& untuned, Bounds bounds)
    : untuned_(untuned), bounds_(bounds), pv_(kPvThreshold.size(), bounds.each_call) {
  for (const double similarity : kSimilarity) {
    for (const double pv_threshold : {kNeverSkips, kSkipsOften}) {
      if (bounds.each_call && pv_threshold != kNeverSkips) continue;  // skips would add to the selection's error
      ways_.push_back({Selection::topk, similarity, pv_threshold, Ladder(kTopk.size(), bounds.each_call)});
      ways_.push_back({Selection::cdf, similarity, pv_threshold, Ladder(kCdf.size(), bounds.each_call)});
    }
  }
}

double HeadSearch::bound_of(const Way& way) const {
  return way.pv_threshold == kNeverSkips ? bounds_.l1 : bounds_.l2;
}

HeadPolicy HeadSearch::policy_of(const Way& way, size_t point) {
  HeadPolicy policy;
  policy.selection = way.selection;
  (way.selection == Selection::topk ? policy.topk : policy.cdf) =
      way.selection == Selection::topk ? kTopk[point] : kCdf[point];
  policy.similarity = way.similarity;
  policy.pv_threshold = way.pv_threshold;
  return policy;
}

double HeadSearch::work_of(const Way& way) {
  const auto found = way.ladder.found();
  return found ? way.ladder.at(*found).work() : 1;
}

const HeadSearch::Way* HeadSearch::best_way() const {
  const Way* best = nullptr;
  for (const Way& way : ways_) {
    if (!way.dropped && way.ladder.found() && (best == nullptr || work_of(way) < work_of(*best))) best = &way;
  }
  return best;
}

void HeadSearch::begin_call() {
  stage_ = Stage::untuned;
  way_ = 0;
}

std::optional<HeadPolicy> HeadSearch::wanted() const {
  switch (stage_) {
    case Stage::untuned:
      return untuned_;
    case Stage::ways:
      return policy_of(ways_[way_], *ways_[way_].ladder.wanted());
    case Stage::pv: {
      HeadPolicy policy = pv_base_;
      policy.pv_threshold = kPvThreshold[*pv_.wanted()];
      return policy;
    }
    case Stage::done:
      return {};
  }
  return {};
}

void HeadSearch::report(const Trial& trial) {
  if (stage_ == Stage::untuned) {
    untuned_trial_ += trial;
    stage_ = Stage::ways;
    way_ = ways_.size();  // remains so if every way is dropped
    for (size_t i = ways_.size(); i-- > 0;) {
      if (ways_[i].dropped) continue;
      ways_[i].ladder.begin_call();
      way_ = i;
    }
    return;
  }
  if (stage_ == Stage::ways) {
    ways_[way_].ladder.report(trial, bound_of(ways_[way_]));
    advance();
    return;
  }
  pv_.report(trial, bounds_.l2);
  if (!pv_.wanted()) stage_ = Stage::done;
}

/// Goes to the next way that has something to measure or, if there is none, to the thresholds of P.V.
void HeadSearch::advance() {
  while (way_ < ways_.size() && (ways_[way_].dropped || !ways_[way_].ladder.wanted())) ++way_;
  if (way_ < ways_.size()) return;
  ++calls_;
  drop_ways();
  start_pv();
}

void HeadSearch::drop_ways() {
  // With each_call, all calls must test the pv_thresholds with one way (start_pv()), so only one way may remain.
  const size_t keep = bounds_.each_call ? 1 : calls_ == 1 ? kAfterFirst : kAfterSecond;
  std::vector<double> works;
  for (const Way& way : ways_)
    if (!way.dropped) works.push_back(work_of(way));
  if (works.size() <= keep) return;
  std::sort(works.begin(), works.end());
  size_t left = keep;
  for (Way& way : ways_) {
    if (way.dropped) continue;
    const bool stays = left > 0 && work_of(way) <= works[keep - 1];
    left -= stays ? 1 : 0;
    way.dropped = !stays;
  }
}

void HeadSearch::start_pv() {
  const Way* best = best_way();
  stage_ = Stage::done;
  if (best == nullptr) return;
  const HeadPolicy base = policy_of(*best, *best->ladder.found());
  // Measurements of P.V thresholds with another selection are not valid for this one. With each_call, however, the
  // largest error of each threshold remains an upper bound: this selection is denser, so its error in those calls is no
  // larger.
  if (base != pv_base_) {
    if (bounds_.each_call)
      pv_.forget_sums();
    else
      pv_ = Ladder(kPvThreshold.size());
  }
  pv_base_ = base;
  pv_.begin_call();
  stage_ = Stage::pv;
}

HeadChoice HeadSearch::untuned() const {
  return untuned_trial_.broken() ? dense_choice() : HeadChoice{untuned_, untuned_trial_};
}

HeadChoice HeadSearch::choice() const {
  const HeadChoice dense = dense_choice();
  const Way* best = best_way();
  if (best == nullptr) return dense;
  const size_t point = *best->ladder.found();
  HeadChoice choice{policy_of(*best, point), best->ladder.at(point)};
  const bool measured = choice.policy == pv_base_;
  if (const auto skip = pv_.found(); skip && measured && pv_.at(*skip).work() < choice.trial.work()) {
    choice.policy.pv_threshold = kPvThreshold[*skip];
    choice.trial = pv_.at(*skip);
  }
  return 1 - choice.trial.work() < kLeastGain ? dense : choice;
}

void HeadSearch::save(std::vector<double>& numbers) const {
  numbers.push_back(static_cast<double>(calls_));
  untuned_trial_.save(numbers);
  for (const Way& way : ways_) {
    numbers.push_back(way.dropped ? 1 : 0);
    way.ladder.save(numbers);
  }
  numbers.push_back(pv_base_.selection == Selection::cdf ? 1 : 0);
  numbers.insert(numbers.end(), {pv_base_.topk, pv_base_.cdf, pv_base_.similarity, pv_base_.pv_threshold});
  pv_.save(numbers);
}

std::span<const double> HeadSearch::restore(std::span<const double> numbers) {
  calls_ = static_cast<int64_t>(take_index(numbers, 1'000'000'000));
  untuned_trial_ = Trial::restore(numbers);
  for (Way& way : ways_) {
    way.dropped = take_index(numbers, 1) == 1;
    numbers = way.ladder.restore(numbers);
  }
  if (std::all_of(ways_.begin(), ways_.end(), [](const Way& way) { return way.dropped; })) throw_damaged();
  pv_base_ = {};
  pv_base_.selection = take_index(numbers, 1) == 1 ? Selection::cdf : Selection::topk;
  for (double* field : {&pv_base_.topk, &pv_base_.cdf, &pv_base_.similarity, &pv_base_.pv_threshold})
    *field = take(numbers);
  stage_ = Stage::done;
  return pv_.restore(numbers);
}

std::vector<std::vector<HeadChoice>> within_bounds(const std::vector<std::vector<HeadSearch>>& heads) {
  std::vector<std::vector<HeadChoice>> choices;
  for (const auto& layer : heads) {
    choices.emplace_back();
    for (const HeadSearch& search : layer) choices.back().push_back(search.choice());
  }
  return choices;
}

std::vector<std::vector<HeadChoice>> choose(const std::vector<std::vector<HeadSearch>>& heads) {
  struct Surplus {
    double work;
    size_t layer, head;
  };
  std::vector<std::vector<HeadChoice>> choices = within_bounds(heads);
  std::vector<Surplus> surplus;  // heads that do more work with their choice than with the untuned policy
  double balance = 0;
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    for (size_t head = 0; head < heads[layer].size(); ++head) {
      const double more = choices[layer][head].trial.work() - heads[layer][head].untuned().trial.work();
      balance += more;
      if (more > 0) surplus.push_back({more, layer, head});
    }
  }
  std::sort(surplus.begin(), surplus.end(), [](const Surplus& a, const Surplus& b) { return a.work > b.work; });
  for (const Surplus& each : surplus) {
    if (balance <= 0) break;
    choices[each.layer][each.head] = heads[each.layer][each.head].untuned();
    balance -= each.work;
  }
  return choices;
}

std::vector<double> layer_work(const std::vector<std::vector<HeadChoice>>& heads) {
  std::vector<double> work;
  for (const auto& layer : heads) {
    double sum = 0;
    for (const HeadChoice& head : layer) sum += head.trial.work();
    work.push_back(layer.empty() ? 1 : sum / static_cast<double>(layer.size()));
  }
  return work;
}

}  // namespace sparsereel::attention
