// Makes the videos that `bench quality` compares, and times their steps.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/lab/bench/classifier.h"
#include "app/lab/bench/quality_plan.h"
#include "app/lab/bench/rows.h"
#include "app/lab/measure/quality.h"
#include "app/lab/measure/run_progress.h"
#include "app/lab/measure/timing.h"
#include "models/engine/denoising.h"

namespace sparsereel::app::bench {

/// Some frames of a video of the first prompt, for --pictures.
struct Picture {
  std::string name;   // "full", or the combination's name
  at::Tensor frames;  // fp32, CPU, [F, H, W, 3]
};

/// `reference` makes the videos of full attention, without 8-bit weights. `by_weights` makes the videos of the rows,
/// each with the row's kind of weights.
struct Pipelines {
  std::shared_ptr<models::Pipeline> reference;
  /// By the value of --weights. A pipeline without 8-bit weights is never loaded, because `reference` makes its videos.
  std::map<std::string, std::shared_ptr<models::Pipeline>> by_weights = {};
};
Pipelines open_pipelines(const QualityPlan& plan, const models::Checkpoint& folder);

class QualityRuns {
 public:
  /// `judge` is the classifier; null if there is none.
  QualityRuns(const QualityPlan& plan, const Pipelines& pipelines, RunProgress& progress, const Classifier* judge);

  void encode_prompts();
  /// Returns the number of tokens of the longest prompt, once prompts are encoded.
  int64_t text_tokens() const;
  /// Denoises each prompt by full attention and by every combination, from the same noise. If a combination fails, its
  /// error becomes the note of its row. Only one pipeline at a time has its transformer in memory; the reference comes
  /// first.
  void denoise();
  /// Times steps of the first prompt, without measuring errors. Rows with the weights of the reference take turns with
  /// full attention. Rows with other weights are timed before, and take turns only with rows of the same weights. Does
  /// nothing if rounds_to_time() is 0.
  void time_steps();
  /// Decodes the latents and compares each row's frames with those of full attention.
  void compare();

  Rows rows() const;
  /// Returns the results of full attention, the reference, as the fields of a row.
  Row full() const;
  /// Returns true if some rows have other weights than the reference. Their steps take no turns with the steps of full
  /// attention.
  bool reduces_weights() const { return sides_.size() > 1; }
  const std::vector<Picture>& pictures() const { return pictures_; }

 private:
  /// The state of a combination. If it failed, its row's note says why.
  struct Entry {
    Entry(const Combination& of, const std::string& name) : combination(of), row(quality_row(of, name)) {}

    Combination combination;
    Row row;
    std::vector<at::Tensor> latents;  // one per prompt, on the CPU, in the family's layout
    bool failed = false;
    std::unique_ptr<models::Denoising> denoising;  // of the first prompt, while its steps are timed
    std::vector<double> milliseconds;              // of the timed steps
    std::vector<bool> computed;                    // true for the steps that were computed

    bool cached() const { return combination.cache.on(); }
  };
  /// A pipeline, the prompts as its text encoder encodes them, and the rows with the pipeline's weights.
  struct Side {
    models::Pipeline& pipeline;
    std::vector<Entry*> entries = {};
    std::vector<models::Conditioning> texts = {};  // on the CPU, one per prompt
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
  const Classifier* classifier_;
  int64_t videos_ = 0;          // number of videos begun so far, for the progress bar
  Entry full_;                  // entry of the reference
  std::vector<Entry> entries_;  // one per combination
  std::vector<Side> sides_;     // the reference comes first
  std::vector<Picture> pictures_;
};

/// Returns the milliseconds of an average step of a whole run. It is the weighted mean of two medians: of the first
/// `dense_steps`, and of the other steps. The weights are the numbers of such steps among all `steps`. `milliseconds`
/// holds the times of a run's first steps, and must include both kinds of steps if the run has both. `figure` selects a
/// statistic in place of the medians.
double step_milliseconds(const std::vector<double>& milliseconds, int64_t dense_steps, int64_t steps,
                         double Spread::*figure = &Spread::median);

/// Returns the times of a whole run with a cache. step_ms is the average of the computed steps, denoise_seconds the sum
/// of all steps. The quartiles assume that every computed step takes the quartile of computed steps, and every reused
/// step the quartile of reused steps.
Row times_of_cached(const std::vector<double>& milliseconds, const std::vector<bool>& computed);

}  // namespace sparsereel::app::bench
