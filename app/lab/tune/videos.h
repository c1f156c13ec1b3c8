// Makes the videos that `tune` compares, and times the steps of those that it may choose.
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

/// Thrown where the budget ends in the middle of something, which then does not count.
struct OutOfTime {};

/// The budget, from the command's start.
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

/// One by its weights; the reference's are "auto".
using Pipelines = std::map<std::string, std::shared_ptr<models::Pipeline>>;

/// What a search and the videos that it asks for work on.
struct TuneContext {
  const TunePlan& plan;
  models::Plan untuned;  // of the plan's request
  const Pipelines& pipelines;
  RunProgress& progress;
  const Deadline& deadline;
  OwnState& own;  // gets what takes long, and is saved after each piece of it

  void save() const { own.state.save(own.path); }
};

class VideoRuns {
 public:
  explicit VideoRuns(const TuneContext& context) : context_(context) {}

  void encode_prompts();
  /// The latents of full attention that are not there yet. Throws OutOfTime.
  void make_references();
  /// Times steps with these weights: of full and quantized attention, and of each topk.
  void time_steps(const std::string& weights, const std::vector<std::optional<double>>& topks);
  /// What was timed.
  bench::StepTimes times() const;
  /// A video beside full attention's. `policy`: in place of the candidate's own blocks, by each head. Throws OutOfTime.
  Seen compare(const Candidate& candidate, size_t prompt, const attention::Policy* policy = nullptr);
  /// How many times as fast a step is whose heads have this policy; they take turns.
  double speedup_of(const Candidate& candidate, const attention::Policy& policy);

  bench::Combination combination_of(const Candidate& candidate) const;
  /// Loads the transformer of these weights in place of another one.
  models::Pipeline& with_transformer(const std::string& weights);
  std::unique_ptr<models::Denoising> start(const bench::Combination& combination, size_t prompt);
  /// Throws where the user or the budget ends the run.
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
  double step_seconds_ = 0, decode_seconds_ = 0;  // of the last video: what the next one may take
};

/// What steps of such a candidate take; nothing where that is not known.
std::optional<StepCost> cost_of(const bench::Combination& combination, const bench::StepTimes& times);

}  // namespace sparsereel::app::tuning
