// Denoises one video, one step at a time, so that several videos can take turns.
#pragma once

#include <ATen/core/Generator.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/engine/experts.h"
#include "models/engine/guidance.h"
#include "models/parallel/share.h"
#include "models/request/attention_run.h"
#include "models/request/denoising_state.h"
#include "models/request/request.h"
#include "models/samplers/sampler.h"
#include "models/samplers/scheduler_config.h"
#include "models/transformer/step_cache.h"
#include "models/transformer/transformer_input.h"

namespace sparsereel::models {

/// The inputs with which a denoising starts, on the device. The latents have the dtype in which samplers step.
struct DenoisingStart {
  Conditioning conditioning;
  at::Tensor latents;       // in the model's layout; the number of frames is a multiple of the patch size in time
  at::Generator generator;  // the run's generator, as it is after the latents were drawn
  LatentLayout layout = LatentLayout::frames_first;
  Group* group = nullptr;  // ranks that make the video together, from the same start; null if this rank works alone
  /// [1, rows, C] in fp32, as in TransformerInput: latents with which the sound starts; undefined if the model makes no
  /// sound
  at::Tensor sound{};
  SchedulerConfig sound_scheduler{};  // config of the sound's sampler
};

/// Denoises one video. If several ranks make the video, all of them call each function. They exchange predictions, and
/// each rank computes everything else redundantly: each makes the sampler's steps from the same bits, which costs less
/// than sending the result. If a rank computes wrongly, so that the ranks' latents differ, the next step detects it.
/// Rank 0 does not broadcast its latents to repair the difference: samplers would keep different histories, and the
/// faulty GPU would stay hidden.
class Denoising {
 public:
  Denoising(std::shared_ptr<Experts> experts, const SchedulerConfig& scheduler, const Plan& plan, DenoisingStart start);

  int64_t steps() const { return static_cast<int64_t>(sampler_->timesteps().size()); }
  int64_t done() const { return done_; }
  bool finished() const { return done() == steps(); }
  /// Loads the expert of the next step, if there is a next step. Returns true if the expert was not loaded before.
  /// step() also loads the expert, so calling this first is optional.
  bool load_expert();
  /// Makes one step: prediction, guidance, sampler. Waits for the device, because the host must read whether the
  /// prediction is finite and whether the step cache reuses the step. If any rank predicts NaN or Inf, all ranks repeat
  /// the prediction with full attention. If step() throws, the denoising and its random numbers are as before the call:
  /// the step may be tried again, or the transformer used for another run.
  void step();
  /// Returns the state of the denoising, which does not depend on the number of ranks. Waits for the device.
  DenoisingState state() const;
  /// Continues from a state of the same plan. Throws Error if the state does not fit the plan.
  void resume(const DenoisingState& state);
  /// Returns the latents in the model's layout, without the extra first frames (see padded_frames()). They are final
  /// once finished() returns true.
  at::Tensor latents() const;
  /// Returns the latents of the sound, [1, rows, C]; undefined if the model makes no sound.
  const at::Tensor& sound() const { return state_.sound; }
  /// Returns the last step's prediction of the final latents (x0) on the device, in the layout of latents(). Valid
  /// after a step, until the next step begins.
  at::Tensor predicted_latents() const;

  AttentionRun& attention() { return attention_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// Returns the latents, with the parts that the conditioning gives (Conditioning::mask) restored.
  at::Tensor with_known(at::Tensor latents) const;
  /// Appends the latents of the conditioning to latents [B, ..] as further channels.
  at::Tensor with_beside(const at::Tensor& latents);
  /// Returns the latents without the extra first frames; see padded_frames().
  at::Tensor of_the_video(const at::Tensor& latents) const;
  TransformerInput input_of(const at::Tensor& latents, const Conditioning& conditioning, double timestep);
  Prediction predict(double timestep, AttentionRun& run);
  Prediction predict_guarded(double timestep);
  void draw_while_busy();
  Prediction redo_with_full_attention(double timestep);
  bool finite_everywhere(const Prediction& prediction) const;
  std::map<std::string, at::Tensor> history() const;
  void restore_history(const std::map<std::string, at::Tensor>& history);
  void discard_counts() noexcept;
  void add_up_layers();
  void take_step();
  /// Frees the caches of the last expert before another expert is loaded.
  void leave_expert();
  /// Empties the step cache, so that the next step is computed.
  void forget_steps();
  /// Forgets the expert's keys and values of image tokens, which no other expert can use.
  void forget_context();

  double timestep() const { return timestep(done_); }
  double timestep(int64_t step) const { return sampler_->timesteps().at(static_cast<size_t>(step)); }

  std::shared_ptr<Experts> experts_;
  Plan plan_;
  std::vector<Guidance> guidance_;  // one for each expert
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Sampler> sound_sampler_;  // makes as many steps as sampler_; null if the model makes no sound
  DenoisingStart state_;
  SplitGroups share_;
  /// Latents of the conditioning that the transformer takes as channels beside the noise; undefined if there are none.
  at::Tensor beside_;
  /// The last result of with_beside(). Its buffer is used again, because the conditioning's channels never change.
  at::Tensor input_;
  std::vector<Keyframe> keyframes_;  // latents [1, C, 1, H, W] of each keyframe
  AttentionRun attention_;
  std::optional<StepCache> cache_;  // the step cache of the last step's expert; unset if the plan has no cache
  std::vector<std::string> warnings_;
  struct LastStep {
    at::Tensor prediction, sample;
  } last_;
  int64_t done_ = 0;
};

}  // namespace sparsereel::models
