// One run of the pipeline: its inputs in addition to the plan, cancellation, and the events that it reports.
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
#include "models/request/latents.h"

namespace sparsereel::models {

class Group;
struct AttentionCall;
struct DenoisingState;
struct MemoryPlan;
struct Outcome;
struct Picture;

/// First and last picture of a video, of any size; null if not given.
struct Images {
  std::shared_ptr<const Picture> first{}, last{};

  bool any() const { return first != nullptr || last != nullptr; }
};

/// The inputs of a run that are not part of its plan.
struct Inputs {
  /// Replace the noise and use no random numbers. If they lack the sound, its noise is drawn.
  Latents init_latents = {};
  Conditioning conditioning = {};                     // for this plan, images included; computed if undefined
  Images images = {};                                 // the pictures of the plan's files
  std::shared_ptr<const DenoisingState> resume = {};  // continue from here; null to begin at the first step
  bool decode = true;                                 // false to stop at the latents
  /// true: the transformer stays in memory, because another video follows at once. false: it is freed before decoding.
  bool keep_transformer = false;
};

/// The times at which the state of a denoising is saved. All ranks must agree, because they save it together.
struct CheckpointTimes {
  int64_t every = 0;       // steps between two checkpoints; 0 for none
  bool last = false;       // after the last step
  bool cancelled = false;  // when the run is cancelled after its first step, with the steps done so far
};

struct StepDone {
  int64_t step = 0, steps = 0;  // finished steps, and all steps of the run
  double seconds = 0;           // duration of this step
  /// Computes the step's prediction of the final latents (x0), in the model's layout, on the device. Call it only
  /// during the event. Empty if the step is a text, not a denoising step.
  std::function<at::Tensor()> predicted_latents = {};
};

/// A moment within denoising step `step`, counted from 0.
struct WithinStep {
  int64_t step = 0, steps = 0;
};

struct PieceProgress {
  int64_t done = 0, total = 0;
};

/// Receives a run's events in the thread that makes the video. An exception ends the run; Cancelled cancels it.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void stage(const std::string& /*name*/) {}  // a stage begins: "text", "image", "load", "denoise", "decode"
  virtual void step(const StepDone& /*step*/) {}
  virtual void within_step(const WithinStep& /*step*/) {}  // often: after each call of attention
  virtual void encoded(const PieceProgress& /*pieces*/) {}
  virtual void decoded(const PieceProgress& /*pieces*/) {}
  virtual bool wants_attention_calls() const { return false; }   // these events cost a copy of Q
  virtual void attention_call(const AttentionCall& /*call*/) {}  // before the call
  virtual void checkpoint(const DenoisingState& /*state*/) {}    // at CheckpointTimes
  virtual void latents(const Outcome& /*outcome*/) {}            // latents are final; the outcome has no frames yet
  virtual void others_released() {}                              // rank 0 of a group no longer needs the other ranks
  virtual void memory(const MemoryPlan& /*plan*/) {}             // where weights stay, when that is decided or changes
  virtual void warning(const std::string& /*text*/) {}  // after the stage or step that caused it; the outcome lists all
  virtual FrameSink* frames() { return nullptr; }       // takes decoded frames; if null, the outcome keeps them
};

/// Combines several observers; events reach them in order. The first one that takes frames gets them.
class Observers : public RunObserver {
 public:
  explicit Observers(std::vector<RunObserver*> all) : all_(std::move(all)) {}

  void stage(const std::string& name) override { tell(&RunObserver::stage, name); }
  void step(const StepDone& step) override { tell(&RunObserver::step, step); }
  void within_step(const WithinStep& step) override { tell(&RunObserver::within_step, step); }
  void encoded(const PieceProgress& pieces) override { tell(&RunObserver::encoded, pieces); }
  void decoded(const PieceProgress& pieces) override { tell(&RunObserver::decoded, pieces); }
  bool wants_attention_calls() const override;
  void attention_call(const AttentionCall& call) override { tell(&RunObserver::attention_call, call); }
  void checkpoint(const DenoisingState& state) override { tell(&RunObserver::checkpoint, state); }
  void latents(const Outcome& outcome) override { tell(&RunObserver::latents, outcome); }
  void others_released() override { tell(&RunObserver::others_released); }
  void memory(const MemoryPlan& plan) override { tell(&RunObserver::memory, plan); }
  void warning(const std::string& text) override { tell(&RunObserver::warning, text); }
  FrameSink* frames() override;

 protected:
  virtual void tell_all(const std::function<void(RunObserver&)>& event);

 private:
  template <typename... Parameters, typename... Details>
  void tell(void (RunObserver::*event)(Parameters...), const Details&... details) {
    tell_all([&](RunObserver& each) { (each.*event)(details...); });
  }

  std::vector<RunObserver*> all_;
};

/// The participants in making one video: its ranks, who may cancel it, and who observes it.
struct Run {
  // The ranks that make the video together, each with its own pipeline and the same plan and inputs. Null if this
  // process works alone. Only rank 0 saves and checks latents and receives the frames. Every rank decodes a band of
  // rows; tiled decoding runs on rank 0 only. If one rank throws, even for lack of memory, the others wait until
  // somebody aborts the group. If any rank is cancelled, all are.
  Group* group = nullptr;
  // Polled before each step, and after each piece of encoding and decoding. With a single rank it is also polled within
  // a step; cancelling within a step undoes that step. Returning true throws Cancelled. Empty if nobody can cancel.
  std::function<bool()> cancelled;
  RunObserver* observer = nullptr;  // null if nobody observes
  CheckpointTimes checkpoints;

  bool is_cancelled() const { return cancelled && cancelled(); }
  RunObserver& tell() const;
};

struct Cancelled {};

}  // namespace sparsereel::models
