// Compares two steps, extrapolates residuals, and saves and restores the state.
#include "models/transformer/step_cache.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

/// Returns the p-norm (sum |x|^p)^(1/p), in fp32 for any dtype of x.
at::Tensor size_of(const at::Tensor& x, int p) {
  return at::linalg_vector_norm(x, p, c10::nullopt, /*keepdim=*/false, at::kFloat);
}

/// Indices of sums of squares: of two tensors y and x, of their sum, and of their difference.
enum Square { kOfY, kOfX, kOfSum, kOfDifference, kSquares };

void add_squares(const at::Tensor& y, const at::Tensor& x, std::vector<at::Tensor>& sums) {
  for (const at::Tensor& each : {y, x, x + y, x - y}) sums.push_back(size_of(each, 2).square());
}

/// Returns the factor by which the last change y (of the first block's residual) predicts the present change x. It is m
/// r^2. m = <x, y> / <y, y> minimizes |x - m y|. r^2 = |m y|^2 / |x|^2 is the fraction of x that m y explains; it makes
/// the factor small if x points elsewhere. The inner product <x, y> is computed from the norms of x + y and x - y,
/// because products in fp16 could overflow.
at::Tensor share_of_squares(const at::Tensor* squares) {
  const at::Tensor& yy = squares[kOfY];
  const at::Tensor multiple = (squares[kOfSum] - squares[kOfDifference]) / (4 * yy);
  return multiple.pow(3) * yy / squares[kOfX];
}

/// Returns the ratio of CacheRule::threshold. `squares` are the sums over all ranks of what StepCache::measure()
/// returns.
at::Tensor ratio_of_squares(const at::Tensor* squares) {
  return (squares[0] / squares[1]).sqrt();
}

constexpr const char* kMeasured = "measured";  // fp64 [2]: spent_ and the measured ratio, NaN if there is none
constexpr const char* kCounts = "counts";  // int64 [2]: number of computed steps, number of forward passes in a step

std::string rest_name(size_t forward) {
  return "rest." + std::to_string(forward);
}

}  // namespace

void StepCache::begin_step(std::optional<bool> reused) {
  forward_ = 0;
  reuses_ = false;
  known_ = reused;
}

/// Returns true if this rank computes another pass than the one that decides.
bool StepCache::is_other_pass() const {
  return in_turn_ && share_.passes && share_.passes->rank() > 0;
}

void StepCache::add_up_ranks(std::vector<at::Tensor>& sums) const {
  if (share_.all == nullptr) return;
  const at::Tensor all = at::stack(sums);
  if (is_other_pass()) all.zero_();
  share_.all->all_reduce_sum(all);
  sums = all.unbind();
}

/// Returns the error that is expected of a step that is reused, to compare with the threshold. Returns NaN if nothing
/// was measured yet.
at::Tensor StepCache::expected_error(const at::Tensor& change) const {
  if (!measures()) return change;
  return ratio_.defined() ? change * ratio_.sqrt() : at::full_like(change, std::nan(""));
}

/// A NaN does not lead to reuse, because comparing it with the threshold is false.
void StepCache::decide(const at::Tensor& first) {
  if (first_.last.defined() && (measures() || known_.value_or(true))) {
    const at::Tensor difference = first - first_.last;
    std::vector<at::Tensor> sums = {size_of(difference, 1), size_of(first_.last, 1)};
    if (first_.before.defined()) add_squares(first_.last - first_.before, difference, sums);
    const size_t measured = sums.size();
    if (squares_.defined()) sums.insert(sums.end(), {squares_[0], squares_[1]});
    add_up_ranks(sums);
    if (squares_.defined()) ratio_ = ratio_of_squares(&sums[measured]);
    squares_.reset();
    const at::Tensor change = sums[0] / sums[1];
    const at::Tensor along = first_.before.defined() ? share_of_squares(&sums[2]) : at::zeros_like(change);
    if (measures()) {
      change_ = change;
      factor_ = along.nan_to_num(0, 0, 0);
    }
    if (known_.value_or(true)) {
      const at::Tensor figures = at::stack({expected_error(change), along}).to(at::kCPU, at::kDouble);
      const double error = figures[0].item<double>();
      reuses_ = known_.value_or(spent_ + error < rule_.threshold);
      if (measures() && reuses_) spent_ += error;
      along_ = figures[1].item<double>();
      if (!std::isfinite(along_)) along_ = 0;
    }
  }
  if (reuses_) return;
  spent_ = 0;
  update(first_, first);
  ++computed_;
}

at::Tensor StepCache::recall() {
  const Memory& rest = rests_.at(forward_++);
  return rest.before.defined() ? at::lerp(rest.before, rest.last, 1 + along_) : rest.last;
}

void StepCache::remember(const at::Tensor& rest) {
  if (forward_ == rests_.size()) rests_.emplace_back();
  if (measures() && forward_ == 0 && rests_[0].last.defined()) measure(rest);
  update(rests_[forward_++], rest);
}

/// Measures the error that the forecast of this computed step would have had. Counts video tokens only, because every
/// rank has the whole text.
void StepCache::measure(const at::Tensor& rest) {
  const Memory& memory = rests_[0];
  at::Tensor error = rest - memory.last;
  if (memory.before.defined()) error.sub_((memory.last - memory.before).mul_(factor_));
  const auto square = [&](const at::Tensor& x) { return size_of(x.narrow(1, 0, first_.last.size(1)), 2).square(); };
  squares_ = at::stack({square(error) / change_.square(), square(rest)});
}

void StepCache::update(Memory& memory, const at::Tensor& now) const {
  if (rule_.kind != CacheKind::first_block) memory.before = memory.last;
  memory.last = now;
}

/// Gathers what all ranks remember. `memory` has this rank's slice of the video tokens, then the text. Each element of
/// the result has all tokens. If passes run in turn, there is one element for each pass; otherwise there is a single
/// element, in which all passes form a batch.
std::vector<StepCache::Memory> StepCache::of_all_ranks(const Memory& memory, int64_t video_tokens) const {
  if (share_.all == nullptr) return {memory};
  const auto with_all_tokens = [&](const at::Tensor& x) {
    if (!x.defined() || !share_.tokens) return x;
    const int64_t own = slice_of(video_tokens, share_.tokens.get()).count;
    const at::Tensor video = gather_slices(x.narrow(1, 0, own), 1, video_tokens, share_.tokens.get());
    return at::cat({video, x.narrow(1, own, x.size(1) - own)}, 1);
  };
  const auto of_passes = [&](const at::Tensor& x) {
    std::vector<at::Tensor> all(share_.passes ? static_cast<size_t>(share_.passes->size()) : 1, x);
    if (!x.defined() || !share_.passes) return all;
    for (at::Tensor& each : all) each = at::empty_like(x, at::MemoryFormat::Contiguous);
    share_.passes->all_gather(x.contiguous(), all);
    return in_turn_ ? all : std::vector<at::Tensor>{at::cat(all)};
  };
  const std::vector<at::Tensor> last = of_passes(with_all_tokens(memory.last)),
                                before = of_passes(with_all_tokens(memory.before));
  std::vector<Memory> all;
  for (size_t i = 0; i < last.size(); ++i) all.push_back({last[i], memory.before.defined() ? before[i] : at::Tensor()});
  return all;
}

/// Returns this rank's part of an element from of_all_ranks().
StepCache::Memory StepCache::of_this_rank(const Memory& memory, int64_t video_tokens) const {
  const auto own = [&](at::Tensor x) {
    if (!x.defined() || share_.all == nullptr) return x;
    if (share_.passes && !in_turn_) x = x.narrow(0, share_.passes->rank(), 1);
    const Slice video = slice_of(video_tokens, share_.tokens.get());
    return at::cat({x.narrow(1, video.first, video.count), x.narrow(1, video_tokens, x.size(1) - video_tokens)}, 1);
  };
  return {own(memory.last), own(memory.before)};
}

std::map<std::string, at::Tensor> StepCache::state() const {
  int64_t video_tokens = first_.last.defined() ? first_.last.size(1) : 0;
  if (share_.tokens && first_.last.defined()) {
    const at::Tensor sum = at::full({1}, video_tokens, first_.last.options().dtype(at::kLong));
    share_.tokens->all_reduce_sum(sum);
    video_tokens = sum.item<int64_t>();
  }
  std::vector<Memory> rests;
  const std::vector<Memory> first = of_all_ranks(first_, video_tokens);
  for (const Memory& rest : rests_)
    for (const Memory& each : of_all_ranks(rest, video_tokens)) rests.push_back(each);
  std::map<std::string, at::Tensor> tensors = {
      {kCounts, at::tensor({computed_, static_cast<int64_t>(rests.size())}, at::kLong)}};
  const auto add = [&tensors](const std::string& name, const Memory& memory) {
    if (memory.last.defined()) tensors[name] = memory.last;
    if (memory.before.defined()) tensors[name + ".before"] = memory.before;
  };
  add("first", first.front());
  if (measures() && computed_ > 0) {
    at::Tensor ratio = ratio_;
    if (squares_.defined()) {
      std::vector<at::Tensor> sums = squares_.unbind();
      add_up_ranks(sums);
      ratio = ratio_of_squares(sums.data());
    }
    tensors[kMeasured] = at::tensor({spent_, ratio.defined() ? ratio.item<double>() : std::nan("")}, at::kDouble);
  }
  for (size_t forward = 0; forward < rests.size(); ++forward) add(rest_name(forward), rests[forward]);
  return tensors;
}

void StepCache::restore(const std::map<std::string, at::Tensor>& state) {
  const auto find = [&](const std::string& name) {
    const auto found = state.find(name);
    if (found != state.end()) return found->second;
    throw bad_input("the state of the cache " + models::name(rule_) + " lacks " + name,
                    "begin at the first step, without this state");
  };
  const auto two_numbers = [&](const char* name, c10::ScalarType dtype, const std::string& expected) {
    at::Tensor numbers = find(name).to(at::kCPU);
    if (numbers.scalar_type() == dtype && numbers.sizes() == at::IntArrayRef({2})) return numbers;
    throw bad_input("the state of the cache " + models::name(rule_) + ": " + name + " is not " + expected + " [2]",
                    "begin at the first step, without this state");
  };
  const at::Tensor counts = two_numbers(kCounts, at::kLong, "int64");
  StepCache restored(rule_, share_, in_turn_ ? GuidancePasses::in_turn : GuidancePasses::batched);
  restored.computed_ = counts[0].item<int64_t>();
  const auto memory = [&](const std::string& name) {
    const bool has_before = rule_.kind != CacheKind::first_block && restored.computed_ > 1;
    return Memory{.last = find(name), .before = has_before ? find(name + ".before") : at::Tensor()};
  };
  Memory first;
  if (restored.computed_ > 0) first = memory("first");
  if (measures() && restored.computed_ > 0) {
    const at::Tensor measured = two_numbers(kMeasured, at::kDouble, "float64");
    restored.spent_ = measured[0].item<double>();
    restored.ratio_ = measured[1].to(first.last.device(), at::kFloat);
  }
  const int64_t video_tokens = first.last.defined() ? first.last.size(1) : 0;
  restored.first_ = of_this_rank(first, video_tokens);
  const int64_t forwards = counts[1].item<int64_t>(), own = share_.passes && in_turn_ ? share_.passes->rank() : -1;
  for (size_t forward = 0; std::cmp_less(forward, forwards); ++forward) {
    const Memory rest = memory(rest_name(forward));
    if (own < 0 || std::cmp_equal(forward, own)) restored.rests_.push_back(of_this_rank(rest, video_tokens));
  }
  *this = std::move(restored);
}

}  // namespace sparsereel::models
