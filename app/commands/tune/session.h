// A tuning run: heads are measured inside full-attention runs of the prompts, then whole videos are compared.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "app/clock.h"
#include "app/commands/tune/options.h"
#include "app/commands/tune/state.h"
#include "app/measure/run_progress.h"
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

/// What is searched for.
struct Found {
  std::vector<std::vector<attention::HeadChoice>> heads;
  int64_t selection_rows = 0;
  attention::DenseStart dense;
  std::optional<VideoFigures> untuned, tuned;  // where videos were compared
  double untuned_work = 1, work = 1;
  std::string fell_back;     // why every head has the untuned policy; empty: the heads have their own
  bool passed = true;        // the quality floor
  bool complete = true;      // the budget did not end the search
  std::string ended_before;  // what was not done then
};

class Session {
 public:
  /// `untuned`: of the plan's request.
  Session(const TunePlan& plan, const models::Plan& untuned, models::Pipeline& pipeline, RunProgress& progress,
          const Deadline& deadline, OwnState& own);

  /// Throws Error where the budget ends before every head was measured once.
  Found run();

 private:
  /// Throws where the user or the budget ends the run.
  void poll();
  bool sample_heads();
  bool sample_prompt(int64_t prompt, const std::vector<int64_t>& steps, bool to_the_end);
  bool has_enough() const;
  bool compare_videos(Found& found);
  void start_checks(const Found& found);
  VideoCheck check_videos(const Found& found, const attention::DenseStart& start, int64_t videos);
  bool may_fall_back(const Found& found) const;
  void fall_back(Found& found, const std::string& reason) const;
  void add_figures(VideoFigures& figures, const at::Tensor& latents, int64_t prompt);
  at::Tensor decode(const at::Tensor& latents);
  double check_seconds(int64_t videos) const;
  bool passes(const VideoFigures& figures) const;
  models::Plan plan_of(int64_t prompt) const;
  void save() const;

  const TunePlan& plan_;
  models::Plan untuned_;
  models::Pipeline& pipeline_;
  RunProgress& progress_;
  const Deadline& deadline_;
  const std::filesystem::path& state_file_;
  TuneState& state_;
  int64_t selection_rows_;
  std::vector<models::Conditioning> texts_;
  std::map<int64_t, at::Tensor> references_;  // prompt -> frames of full attention
  double decode_seconds_ = 0;
};

}  // namespace sparsereel::app::tuning
