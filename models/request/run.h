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
  /// Latents to start from in place of noise; then no random numbers are drawn for them. If they lack the sound, noise
  /// is drawn for the sound.
  Latents init_latents = {};
  Conditioning conditioning = {};                     // encoded texts and images of this plan; computed if undefined
  Images images = {};                                 // the pictures of the plan's files
  std::shared_ptr<const DenoisingState> resume = {};  // state to continue from; null to begin at the first step
  bool decode = true;                                 // false to stop at the latents
  /// true: the transformer stays in memory for the next video, unless blocks are streamed because the GPU is full.
  /// false: it is freed before decoding.
  bool keep_transformer = false;
};

/// The times at which the state of a denoising is saved. They must be the same on all ranks, because all ranks take
/// part in saving.
struct CheckpointTimes {
  int64_t every = 0;       // number of steps from one save to the next; 0 to save only at the times below
  bool last = false;       // true: save after the last step
  bool cancelled = false;  // true: save the finished steps if the run is cancelled after its first step
};

struct StepDone {
  int64_t step = 0, steps = 0;  // finished steps, and all steps of the run
  double seconds = 0;           // duration of this step
  /// Computes the step's prediction of the final latents (x0), in the model's layout, on the device. Call it only
  /// during the event. Empty if the event is not about a denoising step: jobs also report encoded texts this way.
  std::function<at::Tensor()> predicted_latents = {};
};

/// A moment within denoising step `step`, which counts from 0 to `steps` - 1.
struct WithinStep {
  int64_t step = 0, steps = 0;
};

/// Finished pieces (tiles or groups of frames) of encoding or decoding, and all pieces.
struct PieceProgress {
  int64_t done = 0, total = 0;
};

/// Receives a run's events in the thread that makes the video. An exception from a function ends the run: the exception
/// Cancelled cancels it, any other makes it fail.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void stage(const std::string& /*name*/) {}  // a stage begins: "text", "image", "load", "denoise", "decode"
  virtual void step(const StepDone& /*step*/) {}
  virtual void within_step(const WithinStep& /*step*/) {}  // often: after each call of attention
  virtual void encoded(const PieceProgress& /*pieces*/) {}
  virtual void decoded(const PieceProgress& /*pieces*/) {}
  /// true: attention_call() is called. Attention then writes its output to a new tensor, because it may not overwrite
  /// the queries.
  virtual bool wants_attention_calls() const { return false; }
  virtual void attention_call(const AttentionCall& /*call*/) {}  // called before each call of attention
  virtual void checkpoint(const DenoisingState& /*state*/) {}    // called at the run's CheckpointTimes
  virtual void latents(const Outcome& /*outcome*/) {}  // the latents are final, and the outcome has no frames yet
  virtual void others_released() {}                    // from here on, rank 0 of a group works without the other ranks
  virtual void memory(const MemoryPlan& /*plan*/) {}   // the plan of where weights stay was decided or has changed
  /// Comes after the stage or step that caused the warning; the outcome lists all warnings.
  virtual void warning(const std::string& /*text*/) {}
  virtual FrameSink* frames() { return nullptr; }  // the sink of decoded frames; if null, the outcome keeps the frames
};

/// Combines several observers. Events reach them in order. The first observer that has a frame sink gets the frames.
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

/// The context in which one video is made: the group of its ranks, the function that cancels it, its observer, and the
/// times of its checkpoints.
struct Run {
  // The ranks that make the video together, each with its own pipeline and the same plan and inputs. Null if this rank
  // works alone. Only rank 0 saves and checks latents and receives the frames. Every rank decodes a band of rows; tiled
  // decoding runs on rank 0 only. If one rank throws, even for lack of memory, the other ranks wait until the group is
  // aborted. If any rank is cancelled, all ranks are.
  Group* group = nullptr;
  // Polled before each step, and after each piece of encoding and decoding. With a single rank it is also polled within
  // a step; cancelling within a step undoes that step. If it returns true, the run throws Cancelled. Empty if nobody
  // can cancel.
  std::function<bool()> cancelled;
  RunObserver* observer = nullptr;  // null if nobody observes
  CheckpointTimes checkpoints;

  bool is_cancelled() const { return cancelled && cancelled(); }
  RunObserver& tell() const;
};

struct Cancelled {};

}  // namespace sparsereel::models
