// UniPC of order two with B(h) = e^h - 1 ("bh2") on predictions of the clean sample (arXiv:2302.04867). It works like
// diffusers' UniPCMultistepScheduler for flow-matching models.
#pragma once

#include <string_view>
#include <vector>

#include "models/samplers/flow_schedule.h"
#include "models/samplers/sampler.h"

namespace sparsereel::models {

class UniPcSampler : public Sampler {
 public:
  /// `disable_corrector` lists the steps, counted from 0, whose results are not corrected.
  UniPcSampler(FlowSchedule schedule, std::vector<int64_t> disable_corrector);
  /// Makes a sampler that corrects no step. The predictor alone is DPM-Solver++ of order two (2M, arXiv:2211.01095),
  /// like DPMSolverMultistepScheduler.
  explicit UniPcSampler(FlowSchedule schedule);
  /// Corrects `sample` with the model's prediction for it, then predicts the next sample. Steps must be taken in order,
  /// from 0 or from the state given to restore(). Draws nothing from the generator. The result has the sample's dtype.
  at::Tensor step(const at::Tensor& prediction, int64_t index, const at::Tensor& sample,
                  at::Generator generator) override;
  at::Tensor predicted_original(const at::Tensor& prediction, int64_t index, const at::Tensor& sample) const override;
  std::map<std::string, at::Tensor> state() const override;
  void restore(const std::map<std::string, at::Tensor>& state) override;

 private:
  /// Tensors of earlier steps that the next step needs; undefined if there was no such step.
  struct History {
    at::Tensor sample;        // the sample from which the last step started
    at::Tensor clean, older;  // clean samples predicted in the last step and the one before
  };
  struct Name {
    std::string_view key;
    at::Tensor History::*member;
  };
  static constexpr Name kNames[] = {
      {"last_sample", &History::sample}, {"last_clean", &History::clean}, {"older_clean", &History::older}};

  int64_t order(int64_t index) const;
  void require_history(int64_t index) const;
  at::Tensor span(int64_t from, int64_t to) const;
  at::Tensor advance(int64_t index, const at::Tensor& sample, const at::Tensor& clean) const;
  at::Tensor corrected(int64_t index, const at::Tensor& sample, const at::Tensor& clean) const;
  at::Tensor extrapolated(int64_t index, const at::Tensor& clean) const;

  std::vector<int64_t> disable_corrector_;
  at::Tensor sigmas_, half_log_snr_;  // [steps + 1]; half_log_snr_ rises to infinity
  History history_;
};

}  // namespace sparsereel::models
