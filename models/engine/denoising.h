// The steps of one video's denoising, one at a time, so that several can take turns.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>
#include <optional>

#include "models/engine/experts.h"
#include "models/engine/guidance.h"
#include "models/parallel/share.h"
#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "models/request/plan.h"
#include "models/samplers/sampler.h"
#include "models/transformer/step_cache.h"

namespace sparsereel::models {

/// What a run starts from, on the device; latents in the dtype in which samplers step them.
struct DenoisingStart {
  Conditioning conditioning;
  at::Tensor latents;       // in the model's layout, F whole groups of the model's patches in time
  at::Generator generator;  // after the latents were drawn
  LatentLayout layout = LatentLayout::frames_first;
  Group* group = nullptr;  // whose ranks make the video together, all from the same start; null: this one alone
};

/// With several ranks, each function is called by all of them. Predictions are exchanged, and everything after them
/// each rank computes by itself: the sampler's steps are the same operations on the same bits, which cost less than
/// moving their result. Ranks that nevertheless differ are found at the next step, not smoothed over: a broadcast would
/// leave them with other histories of their samplers, and hide a card that computes wrongly.
class Denoising {
 public:
  Denoising(std::shared_ptr<Experts> experts, const SchedulerConfig& scheduler, const Plan& plan, DenoisingStart start);

  int64_t steps() const { return static_cast<int64_t>(sampler_->timesteps().size()); }
  int64_t done() const { return done_; }
  bool finished() const { return done() == steps(); }
  /// Loads the expert of the step to come, where there is one; true where it was not there. step() does so by itself.
  bool load_expert();
  /// One step: prediction, guidance, scheduler. Reads one flag from the device at its end; a prediction with NaN or
  /// Inf, on any rank, is made again with full attention before anything is committed. Where it throws, all is as
  /// before: nothing is committed, counted or drawn, so that the same step may be tried again, or another run of the
  /// same denoiser be next.
  void step();
  /// What one rank alone would have, whatever the number of ranks. Waits for the device.
  DenoisingState state() const;
  /// Goes on from a state of the same plan. Throws Error where it does not fit.
  void resume(const DenoisingState& state);
  /// In the model's layout, without the frames that only fill the last group; final once finished().
  at::Tensor latents() const;
  /// What the last step took the final latents to be: its prediction of x0, laid out as latents() are, on the device.
  /// After a step, until the next one begins.
  at::Tensor predicted_latents() const;

  AttentionRun& attention() { return attention_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// The latents, of which those that are known beforehand stay as they are.
  at::Tensor with_known(at::Tensor latents) const;
  /// What the transformer takes of latents [B, ..]: them, and behind their channels those that go beside them.
  at::Tensor with_beside(const at::Tensor& latents);
  /// Without the frames that only fill the last group.
  at::Tensor of_the_video(const at::Tensor& latents) const;
  at::Tensor predict(double timestep, AttentionRun& run);
  at::Tensor predict_guarded(double timestep);
  void draw_while_busy();
  at::Tensor redo_with_full_attention(double timestep);
  bool finite_everywhere(const at::Tensor& prediction) const;
  void discard_counts() noexcept;
  void add_up_layers();
  void take_step();
  /// Forgets its steps where the next one is another's: before that is loaded, for which memory may be needed.
  void leave_expert();
  /// So that the next step is computed, whatever the rule.
  void forget_steps();
  /// What the expert has made of images' tokens, which is none of another's.
  void forget_context();

  double timestep() const { return timestep(done_); }
  double timestep(int64_t step) const { return sampler_->timesteps().at(static_cast<size_t>(step)); }

  std::shared_ptr<Experts> experts_;
  Plan plan_;
  std::vector<Guidance> guidance_;  // of each expert
  std::unique_ptr<Sampler> sampler_;
  DenoisingStart state_;
  Share share_;
  at::Tensor beside_;  // conditioning latents that go beside the noise, which the conditioning lacks; undefined: none
  at::Tensor input_;   // of the last forward where there are: its other channels stay from one to the next
  AttentionRun attention_;
  std::optional<StepCache> cache_;  // where the plan has one; of the expert of the last step
  std::vector<std::string> warnings_;
  struct LastStep {
    at::Tensor prediction, sample;
  } last_;
  int64_t done_ = 0;
};

}  // namespace sparsereel::models
