// UniPC works in time l = log(alpha / sigma), with alpha = 1 - sigma. If c(l) is the model's prediction of the clean
// sample, the exact step from s to t is
//   x_t = sigma_t / sigma_s x_s + alpha_t (1 - e^-h) mean(c),   h = l_t - l_s,
// where the mean over the span is weighted by e^l. The predictor estimates the mean from predictions at s and before.
// The corrector repeats the span once c(l_t) is also known.
#include "models/samplers/unipc.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "hilbert/error.h"
#include "models/samplers/rounding.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kOrder = 2;

/// The weights in mean(c) = c_s + older (c_r - c_s) / r + end (c_t - c_s). c_s and c_t are the clean predictions at the
/// span's start and end. c_r is the one before the start, at r < 0, where r counts in spans: 0 at the start, 1 at the
/// end.
struct Weights {
  at::Tensor older, end;
};

/// Returns the weights with which the result is exact if c is a parabola. For n = 1 and 2, the mean of r^n must equal
/// the sum of weight * r^(n-1) over the positions r = `older` and r = 1. The means are computed as in the reference,
/// because their cancellation errors for small h affect the result.
Weights parabola_weights(const at::Tensor& h, const at::Tensor& older) {
  const at::Tensor decay = rounded_expm1(-h);
  const at::Tensor first = decay / -h - 1;
  const at::Tensor mean = first / decay, mean_square = (first / -h - 0.5) * 2 / decay;
  const at::Tensor weight = (mean - mean_square) / (1 - older);
  return {weight, mean - weight};
}

}  // namespace

UniPcSampler::UniPcSampler(FlowSchedule schedule, std::vector<int64_t> disable_corrector)
    : Sampler(std::move(schedule.timesteps)),
      disable_corrector_(std::move(disable_corrector)),
      sigmas_(std::move(schedule.sigmas)),
      half_log_snr_(rounded_log(1 - sigmas_) - rounded_log(sigmas_)) {}

UniPcSampler::UniPcSampler(FlowSchedule schedule) : UniPcSampler(std::move(schedule), {}) {
  disable_corrector_.resize(timesteps_.size());
  std::iota(disable_corrector_.begin(), disable_corrector_.end(), 0);
}

/// Returns the order of step `index`: 1 for the first step, which has no history, and for the last step, whose span is
/// infinite; else 2.
int64_t UniPcSampler::order(int64_t index) const {
  return std::min({kOrder, index + 1, static_cast<int64_t>(timesteps_.size()) - index});
}

at::Tensor UniPcSampler::span(int64_t from, int64_t to) const {
  return half_log_snr_[to] - half_log_snr_[from];
}

/// Returns the sample of step `index` + 1. `sample` is the sample of step `index`; `clean` is the mean of c over the
/// span from this step to the next.
at::Tensor UniPcSampler::advance(int64_t index, const at::Tensor& sample, const at::Tensor& clean) const {
  const at::Tensor sigma = sigmas_[index + 1];
  return sigma / sigmas_[index] * sample - (1 - sigma) * rounded_expm1(-span(index, index + 1)) * clean;
}

/// Returns the corrected `sample` of step `index` (UniC): repeats the span that led to it, now with `clean`, the
/// prediction at the span's end.
at::Tensor UniPcSampler::corrected(int64_t index, const at::Tensor& sample, const at::Tensor& clean) const {
  const int64_t last = index - 1;
  const at::Tensor& start = history_.clean;
  at::Tensor mean;
  if (order(last) == 1) {
    mean = start + 0.5 * (clean - start);
  } else {
    const at::Tensor h = span(last, index), place = span(last, last - 1) / h;
    const Weights weights = parabola_weights(h, place);
    mean = start + weights.older * ((history_.older - start) / place) + weights.end * (clean - start);
  }
  return advance(last, history_.sample, mean).to(sample.scalar_type());
}

/// Estimates the mean of c over the next span (UniP): the value at the middle of the span, on the line through the last
/// two predictions.
at::Tensor UniPcSampler::extrapolated(int64_t index, const at::Tensor& clean) const {
  if (order(index) == 1) return clean;
  const at::Tensor place = span(index, index - 1) / span(index, index + 1);
  return clean + 0.5 * ((history_.clean - clean) / place);
}

void UniPcSampler::require_history(int64_t index) const {
  const bool complete =
      index == 0 || (history_.sample.defined() && history_.clean.defined() && (index == 1 || history_.older.defined()));
  if (complete) return;
  throw run_failure("step " + std::to_string(index) + " of the UniPC sampler lacks the history of the steps before",
                    "remove the checkpoint: the run then begins at its first step");
}

at::Tensor UniPcSampler::predicted_original(const at::Tensor& prediction, int64_t index,
                                            const at::Tensor& sample) const {
  return sample - sigmas_[index] * prediction;
}

at::Tensor UniPcSampler::step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample, at::Generator) {
  require_history(index);
  const at::Tensor clean = predicted_original(prediction, index, sample);
  const bool corrects = index > 0 && std::ranges::find(disable_corrector_, index - 1) == disable_corrector_.end();
  const at::Tensor from = corrects ? corrected(index, sample, clean) : sample;
  at::Tensor next = advance(index, from, extrapolated(index, clean)).to(sample.scalar_type());
  history_ = {.sample = from, .clean = clean, .older = history_.clean};
  return next;
}

std::map<std::string, at::Tensor> UniPcSampler::state() const {
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, member] : kNames) {
    if ((history_.*member).defined()) state.emplace(name, history_.*member);
  }
  return state;
}

void UniPcSampler::restore(const std::map<std::string, at::Tensor>& state) {
  History history;
  for (const auto& [name, tensor] : state) {
    const auto* known = std::ranges::find(kNames, name, &Name::key);
    if (known == std::end(kNames)) {
      throw bad_input("sampler state \"" + name + "\" does not belong to UniPC or DPM-Solver++",
                      "resume with the scheduler that wrote the checkpoint");
    }
    history.*(known->member) = tensor;
  }
  history_ = std::move(history);
}

}  // namespace sparsereel::models
