// How far two steps differ, what a reused one adds, and the state that a denoising checkpoint keeps.
#include "models/dit/step_cache.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

/// (sum |x|^p)^(1/p), in fp32 whatever x is.
at::Tensor size_of(const at::Tensor& x, int p) {
  return at::linalg_vector_norm(x, p, c10::nullopt, /*keepdim=*/false, at::kFloat);
}

/// How many times y is in x: the multiple that is nearest to x, times the share of x's square that it explains. Less is
/// known of what differs otherwise. By norms of sums, since products of fp16 could overflow.
at::Tensor share_of(const at::Tensor& y, const at::Tensor& x) {
  const at::Tensor yy = size_of(y, 2).square(), xx = size_of(x, 2).square();
  const at::Tensor multiple = (size_of(x + y, 2).square() - size_of(x - y, 2).square()) / (4 * yy);
  return multiple.pow(3) * yy / xx;
}

constexpr const char* kCounts = "counts";  // [2]: computed steps, forwards of each

std::string rest_name(size_t forward) {
  return "rest." + std::to_string(forward);
}

}  // namespace

void StepCache::begin_step(std::optional<bool> reused) {
  forward_ = 0;
  reuses_ = false;
  known_ = reused;
}

/// NaN by itself leaves nothing out: what comes of it is for the steps' guard.
void StepCache::decide(const at::Tensor& first) {
  if (first_.last.defined() && known_.value_or(true)) {
    const at::Tensor difference = first - first_.last, change = size_of(difference, 1) / size_of(first_.last, 1);
    const at::Tensor along =
        first_.before.defined() ? share_of(first_.last - first_.before, difference) : at::zeros_like(change);
    const at::Tensor figures = at::stack({change, along}).to(at::kCPU, at::kDouble);
    reuses_ = known_.value_or(figures[0].item<double>() < rule_.threshold);
    along_ = figures[1].item<double>();
    if (!std::isfinite(along_)) along_ = 0;
  }
  if (reuses_) return;
  update(first_, first);
  ++computed_;
}

at::Tensor StepCache::recall() {
  const Memory& rest = rests_.at(forward_++);
  return rest.before.defined() ? at::lerp(rest.before, rest.last, 1 + along_) : rest.last;
}

void StepCache::remember(const at::Tensor& rest) {
  if (forward_ == rests_.size()) rests_.emplace_back();
  update(rests_[forward_++], rest);
}

void StepCache::update(Memory& memory, const at::Tensor& now) const {
  if (rule_.kind != CacheKind::first_block) memory.before = memory.last;
  memory.last = now;
}

std::map<std::string, at::Tensor> StepCache::state() const {
  std::map<std::string, at::Tensor> tensors = {
      {kCounts, at::tensor({computed_, static_cast<int64_t>(rests_.size())}, at::kLong)}};
  const auto add = [&tensors](const std::string& name, const Memory& memory) {
    if (memory.last.defined()) tensors[name] = memory.last;
    if (memory.before.defined()) tensors[name + ".before"] = memory.before;
  };
  add("first", first_);
  for (size_t forward = 0; forward < rests_.size(); ++forward) add(rest_name(forward), rests_[forward]);
  return tensors;
}

void StepCache::restore(const std::map<std::string, at::Tensor>& state) {
  const auto find = [&](const std::string& name) {
    const auto found = state.find(name);
    if (found != state.end()) return found->second;
    throw bad_input("the state of the cache " + models::name(rule_) + " lacks " + name,
                    "begin at the first step, without this state");
  };
  const at::Tensor counts = find(kCounts).to(at::kCPU);
  if (counts.scalar_type() != at::kLong || counts.sizes() != at::IntArrayRef({2}))
    throw bad_input("the state of the cache " + models::name(rule_) + ": " + kCounts + " is not int64 [2]",
                    "begin at the first step, without this state");
  StepCache restored(rule_);
  restored.computed_ = counts[0].item<int64_t>();
  const auto memory = [&](const std::string& name) {
    const bool has_before = rule_.kind != CacheKind::first_block && restored.computed_ > 1;
    return Memory{.last = find(name), .before = has_before ? find(name + ".before") : at::Tensor()};
  };
  if (restored.computed_ > 0) restored.first_ = memory("first");
  const int64_t forwards = counts[1].item<int64_t>();
  for (size_t forward = 0; std::cmp_less(forward, forwards); ++forward)
    restored.rests_.push_back(memory(rest_name(forward)));
  *this = std::move(restored);
}

}  // namespace sparsereel::models
