// One video being made: what it is given beside its plan, who may stop it, and what it tells.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/request/conditioning.h"
#include "models/request/frame_sink.h"
#include "models/request/images.h"

namespace sparsereel::models {

class Group;
struct AttentionCall;
struct DenoisingState;
struct Outcome;

/// What is given beside a plan.
struct Inputs {
  at::Tensor init_latents = {};                       // in the model's layout, in place of noise; consumes no draw
  Conditioning conditioning = {};                     // for this plan, image and all; undefined: it is made
  Images images = {};                                 // of the plan's files
  std::shared_ptr<const DenoisingState> resume = {};  // go on from here; null: from the first step
  bool decode = true;                                 // false: stop at the latents
  /// The next video follows at once: the denoiser stays beside the decoder, which needs its memory otherwise.
  bool keep_transformer = false;
};

/// When the state of a denoising is to be kept. The same on all ranks, which make it together.
struct CheckpointTimes {
  int64_t every = 0;       // after every so many steps; 0: after none
  bool last = false;       // after the last step
  bool cancelled = false;  // where the run is cancelled after its first step: the steps that are done
};

/// A denoising step, or a text, that is done.
struct StepDone {
  int64_t step = 0, steps = 0;  // how many are done, and of how many
  double seconds = 0;           // it took
  /// What the step took the final latents to be (x0): in the model's layout, on the device. It is computed when it is
  /// called, which must be during the event. Empty: a text has none.
  std::function<at::Tensor()> predicted_latents = {};
};

/// Within a denoising step: `step` of `steps`, from 0.
struct WithinStep {
  int64_t step = 0, steps = 0;
};

/// Pieces of frames that were encoded or decoded.
struct Pieces {
  int64_t done = 0, total = 0;
};

/// Hears what a run tells, in the thread that makes the video. What a function throws ends the run; Cancelled cancels
/// it.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void stage(const std::string& /*name*/) {}  // begins: "text", "image", "load", "denoise", "decode"
  virtual void step(const StepDone& /*step*/) {}
  virtual void within_step(const WithinStep& /*step*/) {}  // again and again: after each call of attention
  virtual void encoded(const Pieces& /*pieces*/) {}
  virtual void decoded(const Pieces& /*pieces*/) {}
  virtual bool wants_attention_calls() const { return false; }   // they cost a copy of Q
  virtual void attention_call(const AttentionCall& /*call*/) {}  // before it is made
  virtual void checkpoint(const DenoisingState& /*state*/) {}    // by CheckpointTimes
  virtual void latents(const Outcome& /*outcome*/) {}            // they are final, and the outcome has no frames yet
  virtual void alone() {}  // of rank 0 of a group: the other ranks are of no matter from here on
  virtual void warning(const std::string& /*text*/) {}  // after the stage or step that gave it; the outcome has all
  virtual FrameSink* frames() { return nullptr; }  // takes the frames as they are decoded; null: the outcome has them
};

/// Several observers as one, told in their order. The first that takes frames gets them.
class Observers : public RunObserver {
 public:
  explicit Observers(std::vector<RunObserver*> all) : all_(std::move(all)) {}

  void stage(const std::string& name) override { tell(&RunObserver::stage, name); }
  void step(const StepDone& step) override { tell(&RunObserver::step, step); }
  void within_step(const WithinStep& step) override { tell(&RunObserver::within_step, step); }
  void encoded(const Pieces& pieces) override { tell(&RunObserver::encoded, pieces); }
  void decoded(const Pieces& pieces) override { tell(&RunObserver::decoded, pieces); }
  bool wants_attention_calls() const override;
  void attention_call(const AttentionCall& call) override { tell(&RunObserver::attention_call, call); }
  void checkpoint(const DenoisingState& state) override { tell(&RunObserver::checkpoint, state); }
  void latents(const Outcome& outcome) override { tell(&RunObserver::latents, outcome); }
  void alone() override { tell(&RunObserver::alone); }
  void warning(const std::string& text) override { tell(&RunObserver::warning, text); }
  FrameSink* frames() override;

 protected:
  /// Tells every observer of one event.
  virtual void tell_all(const std::function<void(RunObserver&)>& event);

 private:
  template <typename... Parameters, typename... Details>
  void tell(void (RunObserver::*event)(Parameters...), const Details&... details) {
    tell_all([&](RunObserver& each) { (each.*event)(details...); });
  }

  std::vector<RunObserver*> all_;
};

/// Of one video: its ranks, who may cancel it, who hears of it.
struct Run {
  // Whose ranks make the video together, each with a pipeline of its own and the same plan and inputs; null: this one
  // alone. Rank 0 alone keeps and checks latents, and has the frames. All decode, some rows each, but in tiles, which
  // are rank 0's. What one throws by itself, running out of memory too, the others wait for until somebody aborts the
  // group; cancelled they are together, where any of them is.
  Group* group = nullptr;
  // Polled before each step and after each piece, and where one rank alone makes the video within a step too, which is
  // then undone. True throws Cancelled. Empty: nobody cancels.
  std::function<bool()> cancelled;
  RunObserver* observer = nullptr;  // null: nobody listens
  CheckpointTimes checkpoints;

  bool is_cancelled() const { return cancelled && cancelled(); }
  /// Whom to tell.
  RunObserver& tell() const;
};

/// Thrown where a run is cancelled.
struct Cancelled {};

}  // namespace sparsereel::models
