// Makes the videos that `bench quality` compares, and times their steps.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/commands/bench/judge.h"
#include "app/commands/bench/quality_plan.h"
#include "app/commands/bench/quality_rows.h"
#include "app/measure/quality.h"
#include "app/measure/run_progress.h"
#include "models/engine/denoising.h"

namespace sparsereel::app::bench {

/// A video of the first prompt, as frames to look at.
struct Picture {
  std::string name;   // "full", or the combination's
  at::Tensor frames;  // a few of them, fp32 CPU [F, H, W, 3]
};

class QualityRuns {
 public:
  /// `settings`: what the plan's request resolved to. `reference`: makes the videos by full attention that all others
  /// are compared with; the same pipeline, or one whose weights are not reduced. `judge`: null where nobody judges.
  QualityRuns(const QualityPlan& plan, const models::GenerateSettings& settings, models::Pipeline& pipeline,
              models::Pipeline& reference, RunProgress& progress, const Judge* judge);

  void encode_prompts();
  /// For each prompt by full attention and by every combination, from one noise. What a combination cannot do becomes
  /// its row's note. Of two pipelines one has its transformer in memory at a time: the reference comes first.
  void denoise();
  /// Steps of the first prompt, all combinations and full attention in turns, without measuring errors. A reference
  /// with other weights is timed after the others.
  void time_steps();
  /// Decodes what was denoised and compares the frames.
  void compare();

  Rows rows() const;
  /// On full attention's videos, one a prompt; none where nobody judges.
  const Rows& full_verdicts() const { return full_verdicts_; }
  const std::optional<double>& full_step_ms() const { return full_step_ms_; }
  /// Whether the reference has other weights: its steps take no turns with the rows'.
  bool reduces_weights() const { return &side_.pipeline != &reference_.pipeline; }
  const std::vector<Picture>& pictures() const { return pictures_; }

 private:
  /// A combination on its way; its row's note says why where it failed.
  struct Entry {
    Combination combination;
    Row row;
    std::vector<at::Tensor> latents;  // one a prompt, CPU, laid out as the family's are
    bool failed = false;
  };
  struct Turns;
  /// A pipeline, and what its text encoder made of the prompts.
  struct Side {
    models::Pipeline& pipeline;
    std::vector<at::Tensor> texts = {};  // CPU, one a prompt
  };

  void begin(const std::string& stage, const Side& side);
  std::unique_ptr<models::Denoising> start(const Side& side, const models::GenerateRequest& request, size_t prompt);
  std::unique_ptr<models::Denoising> run(const Side& side, const models::GenerateRequest& request, size_t prompt);
  void run(Entry& entry, size_t prompt);
  int64_t rounds_to_time() const;
  double time_step(const Side& side, Turns& turns);
  void take_turns(const Side& side, std::span<Turns> all, int64_t rounds);
  at::Tensor decode(const at::Tensor& latents, const std::string& name, size_t prompt);
  Row verdict_on(const at::Tensor& frames, size_t prompt) const;

  const QualityPlan& plan_;
  models::GenerateSettings settings_;
  Side side_, reference_;  // the same pipeline, or two
  RunProgress& progress_;
  const Judge* judge_;
  int64_t videos_ = 0;            // begun
  std::vector<Entry> entries_;    // one a combination
  std::vector<at::Tensor> full_;  // the reference's latents, one a prompt
  Rows full_verdicts_;
  std::optional<double> full_step_ms_;
  std::vector<Picture> pictures_;
};

/// Milliseconds of a step of a whole run: the median of its first `dense_steps` and that of the others, weighed by how
/// many of `steps` each kind is. `milliseconds`: of the first steps, some of each kind that occurs.
double step_milliseconds(const std::vector<double>& milliseconds, int64_t dense_steps, int64_t steps);

}  // namespace sparsereel::app::bench
