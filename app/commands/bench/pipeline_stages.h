// Measures a pipeline's stages, the denoising steps of all contenders in turns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/commands/bench/pipeline_plan.h"
#include "app/commands/bench/sections.h"
#include "app/commands/bench/stage_rows.h"
#include "app/measure/run_progress.h"
#include "models/engine/denoising.h"

namespace sparsereel::app::bench {

class PipelineStages {
 public:
  /// `settings`: what the plan's request resolved to.
  PipelineStages(const PipelinePlan& plan, const models::GenerateSettings& settings, models::Pipeline& pipeline,
                 RunProgress& progress);

  /// Loads and runs the text encoder, then lets it go.
  void measure_text();
  /// Loads the denoiser; each contender warms up, then they take turns step by step, every one from the same noise;
  /// in each repetition one step more has its sections measured, whose shares are those of the median step. A contender
  /// with a cache takes its turn run by run, and has no sections: its steps differ. What a contender cannot do becomes
  /// its row's note.
  void measure_steps();
  /// Loads the decoder and decodes what each contender made; frames and latents are compared with those of mode full.
  /// Here and below a failure becomes the row's note: the steps were measured all the same.
  void measure_decode();
  /// Writes a video to a temporary file.
  void measure_encode();

  /// What was measured so far, in the order of a run.
  Rows rows() const;

 private:
  struct Entry {
    Combination contender;
    models::GenerateRequest request;
    Row row;
    std::unique_ptr<models::Denoising> denoising;
    std::vector<double> milliseconds;  // of each step; with a cache the mean of each run's
    std::vector<Split> splits;         // of one step of each repetition
    uint64_t peak_bytes = 0;
    at::Tensor latents;  // CPU, laid out as the family's are
    at::Tensor frames;   // CPU [F, H, W, 3]

    bool cached() const { return contender.cache.on(); }
    bool failed() const { return row.contains("note"); }
  };

  double time(const std::function<void()>& call) const;
  Row shared_row(const std::string& stage, const std::vector<double>& milliseconds, const std::string& note = {}) const;
  void attempt(Entry& entry, const std::function<void()>& call);
  void restart(Entry& entry);
  void warm_up(Entry& entry);
  void split_step(Entry& entry);
  double time_step(Entry& entry);
  void time_run(Entry& entry);
  void time_runs();
  void next_round();
  void finish_steps(Entry& entry);
  void decode(Entry& entry, std::vector<double>& milliseconds);
  void compare_with_full();

  const PipelinePlan& plan_;
  models::GenerateSettings settings_;
  models::Pipeline& pipeline_;
  RunProgress& progress_;
  int64_t warmup_, repetitions_;
  int64_t rounds_ = 0;  // of steps
  at::Tensor text_;
  std::vector<Entry> entries_;
  Rows before_, after_;  // stages that all share, before and after the steps
  std::string decode_note_;
};

}  // namespace sparsereel::app::bench
