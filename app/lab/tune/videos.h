// Makes the videos that `tune` compares, and times the steps of its candidates.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/clock.h"
#include "app/lab/bench/combinations.h"
#include "app/lab/bench/step_times.h"
#include "app/lab/measure/run_progress.h"
#include "app/lab/tune/options.h"
#include "app/lab/tune/state.h"
#include "models/engine/denoising.h"
#include "models/engine/pipeline.h"

namespace sparsereel::app::tuning {

/// Thrown if the budget ends in the middle of some work. The results of that work are discarded.
struct OutOfTime {};

/// The budget, counted from the command's start.
class Deadline {
 public:
  Deadline(std::chrono::steady_clock::time_point start, double seconds) : start_(start), seconds_(seconds) {}

  double seconds() const { return seconds_; }
  double elapsed() const { return seconds_since(start_); }
  double left() const { return seconds_ - elapsed(); }
  void check() const {
    if (left() <= 0) throw OutOfTime{};
  }

 private:
  std::chrono::steady_clock::time_point start_;
  double seconds_;
};

/// A pipeline for each kind of weights, by the value of --weights. The reference has "auto".
using Pipelines = std::map<std::string, std::shared_ptr<models::Pipeline>>;

/// The objects that all parts of a tuning run share.
struct TuneContext {
  const TunePlan& plan;
  models::Plan untuned;  // the plan of the request before tuning
  const Pipelines& pipelines;
  RunProgress& progress;
  const Deadline& deadline;
  OwnState& own;  // collects the results that take long, and is saved after each

  void save() const { own.state.save(own.path); }
};

class VideoRuns {
 public:
  explicit VideoRuns(const TuneContext& context) : context_(context) {}

  void encode_prompts();
  /// Makes the latents of full attention that are not saved yet. Throws OutOfTime if the budget ends.
  void make_references();
  /// Times steps with these weights whose times are not known yet: full and quantized attention, and each topk.
  void time_steps(const std::string& weights, const std::vector<std::optional<double>>& topks);
  /// Returns the times of the steps that were timed so far.
  bench::StepTimes times() const;
  /// Makes a video and compares it with the video of full attention. `policy`, if not null, holds policies for heads
  /// that replace the candidate's. Throws OutOfTime if the budget ends.
  Seen compare(const Candidate& candidate, size_t prompt, const attention::Policy* policy = nullptr);
  /// Returns how many times as fast a step is with this policy for the heads as with the candidate's own. Times only
  /// steps that drop blocks, and alternates between the two policies.
  double speedup_of(const Candidate& candidate, const attention::Policy& policy);

  bench::Combination combination_of(const Candidate& candidate) const;
  /// Loads the transformer with these weights and frees any other.
  models::Pipeline& with_transformer(const std::string& weights);
  std::unique_ptr<models::Denoising> start(const bench::Combination& combination, size_t prompt);
  /// Throws models::Cancelled if the user has interrupted the run, and OutOfTime if the budget has ended.
  void poll();

 private:
  models::Plan plan_of(const bench::Combination& combination, size_t prompt) const;
  at::Tensor decode(const at::Tensor& latents);
  const at::Tensor& reference(size_t prompt);
  void require_time(double seconds) const;
  std::vector<std::vector<double>> take_turns(const std::vector<bench::Combination>& all);

  const TuneContext& context_;
  std::vector<models::Conditioning> texts_;
  std::map<size_t, at::Tensor> references_;       // frames of full attention, by prompt
  double step_seconds_ = 0, decode_seconds_ = 0;  // seconds of the last video, to predict the time of the next one
};

/// Returns the cost of the combination's steps; nothing if it is unknown.
std::optional<StepCost> cost_of(const bench::Combination& combination, const bench::StepTimes& times);

}  // namespace sparsereel::app::tuning
