// Makes the videos that `bench quality` compares, and times their steps.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/lab/bench/judge.h"
#include "app/lab/bench/quality_plan.h"
#include "app/lab/bench/rows.h"
#include "app/lab/measure/quality.h"
#include "app/lab/measure/run_progress.h"
#include "app/lab/measure/timing.h"
#include "models/engine/denoising.h"

namespace sparsereel::app::bench {

/// A video of the first prompt, as frames to look at.
struct Picture {
  std::string name;   // "full", or the combination's
  at::Tensor frames;  // a few of them, fp32 CPU [F, H, W, 3]
};

/// Makes the videos by full attention that all others are compared with, by weights that are not reduced; and those of
/// the rows, by the rows' weights.
struct Pipelines {
  std::shared_ptr<models::Pipeline> reference;
  std::map<std::string, std::shared_ptr<models::Pipeline>> by_weights = {};  // where nothing is reduced, not loaded
};
Pipelines open_pipelines(const QualityPlan& plan, const models::Checkpoint& folder);

class QualityRuns {
 public:
  /// `judge`: null where nobody judges.
  QualityRuns(const QualityPlan& plan, const Pipelines& pipelines, RunProgress& progress, const Judge* judge);

  void encode_prompts();
  /// For each prompt by full attention and by every combination, from one noise. What a combination cannot do becomes
  /// its row's note. Of several pipelines one has its transformer in memory at a time: the reference comes first.
  void denoise();
  /// Steps of the first prompt, all combinations and full attention in turns, without measuring errors; rows of other
  /// weights than the reference's apart, before the others. Nothing where --times tells what a step takes.
  void time_steps();
  /// Decodes what was denoised and compares the frames.
  void compare();

  Rows rows() const;
  /// The like of full attention, which all are compared with.
  Row full() const;
  /// Whether rows have other weights than the reference: their steps take no turns with its.
  bool reduces_weights() const { return sides_.size() > 1; }
  const std::vector<Picture>& pictures() const { return pictures_; }

 private:
  /// A combination on its way; its row's note says why where it failed.
  struct Entry {
    Entry(const Combination& of, const std::string& name) : combination(of), row(quality_row(of, name)) {}

    Combination combination;
    Row row;
    std::vector<at::Tensor> latents;  // one a prompt, CPU, laid out as the family's are
    bool failed = false;
    std::unique_ptr<models::Denoising> denoising;  // of the first prompt, while its steps are timed
    std::vector<double> milliseconds;              // of these steps
    std::vector<bool> computed;                    // which of them

    bool cached() const { return combination.cache.on(); }
  };
  /// A pipeline, what its text encoder made of the prompts, and the rows of its weights.
  struct Side {
    models::Pipeline& pipeline;
    std::vector<Entry*> entries = {};
    std::vector<models::Conditioning> texts = {};  // CPU, one a prompt
  };

  void begin(const std::string& stage, const Side& side);
  std::unique_ptr<models::Denoising> start(const Side& side, const Entry& entry, size_t prompt, attention::Mode mode);
  void run(const Side& side, Entry& entry, size_t prompt);
  void run_all(const Side& side);
  double time_step(const Side& side, Entry& entry);
  void take_turns(const Side& side, std::span<Entry*> all, int64_t rounds);
  void add_times(Entry& entry) const;
  at::Tensor decode(Entry& entry, const std::string& name, size_t prompt);

  const QualityPlan& plan_;
  RunProgress& progress_;
  const Judge* judge_;
  int64_t videos_ = 0;          // begun
  Entry full_;                  // the reference's
  std::vector<Entry> entries_;  // one a combination
  std::vector<Side> sides_;     // the reference's first
  std::vector<Picture> pictures_;
};

/// Milliseconds of a step of a whole run: the median of its first `dense_steps` and that of the others, weighed by how
/// many of `steps` each kind is. `milliseconds`: of the first steps, some of each kind that occurs. `figure`: in place
/// of the median.
double step_milliseconds(const std::vector<double>& milliseconds, int64_t dense_steps, int64_t steps,
                         double Spread::*figure = &Spread::median);

/// Of a whole run with a cache: step_ms, the mean of the steps that were computed, and denoise_seconds, of all; the
/// quartiles of both, as if all steps of a kind took its quartile at once.
Row times_of_cached(const std::vector<double>& milliseconds, const std::vector<bool>& computed);

}  // namespace sparsereel::app::bench
