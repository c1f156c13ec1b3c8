// Measures the stages of a video. In the denoising steps, the contenders take turns.
#include "app/lab/bench/pipeline_stages.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "app/jobs/image.h"
#include "app/jobs/write.h"
#include "app/lab/bench/rows.h"
#include "app/lab/bench/sections.h"
#include "app/lab/measure/quality.h"
#include "app/lab/measure/timing.h"
#include "models/engine/denoising.h"
#include "models/engine/text_stage.h"
#include "models/files/temporary.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::bench {
namespace {

namespace fs = std::filesystem;

/// A row gets a note if measuring the parts of a step slows the step down by this factor.
constexpr double kFarLonger = 1.25;

/// Adds to the row how `milliseconds` divide into matmul, attention and rest. Adds a note if the calls that were split
/// took far longer than `milliseconds`.
void add_parts(const std::vector<Split>& splits, double milliseconds, Row& row) {
  if (splits.empty()) return;
  row.update(part_fields(parts_of(milliseconds, splits)));
  std::vector<double> totals;
  std::ranges::transform(splits, std::back_inserter(totals), &Split::total);
  const double whole = spread(totals).median;
  if (whole > kFarLonger * milliseconds)
    row["note"] = "matmul, attention and rest are scaled from a step that took " + number_text(whole, 3) +
                  " ms while it was split";
}

class PipelineStages {
 public:
  PipelineStages(const PipelinePlan& plan, models::Pipeline& pipeline, RunProgress& progress)
      : plan_(plan), pipeline_(pipeline), progress_(progress) {
    const bool cpu = pipeline.device().is_cpu();  // few runs suffice on a CPU: its times are steady
    warmup_ = plan.options.warmup.value_or(cpu ? 1 : 2);
    repetitions_ = plan.options.repetitions.value_or(cpu ? 1 : 3);
    at::empty({1}, at::TensorOptions().device(pipeline.device()));  // starts CUDA, so that no stage includes that time
  }

  /// Encodes the images, if there are any. Then loads the text encoder, encodes the text (which may refer to the
  /// images), and releases the encoder.
  void measure_text() {
    models::Conditioning images;
    const std::optional<Row> image_row = measure_image(images);
    encode_text(images.seen);
    conditioning_.take_video(images);
    if (image_row) before_.push_back(*image_row);
  }

  void encode_text(const at::Tensor& seen) {
    progress_.stage("text");
    models::reset_peak_memory(pipeline_.device());
    models::TextStage& stage = pipeline_.text_stage();
    const auto encode = [&] { conditioning_ = stage.encode(plan_.video, nullptr, seen); };
    if (stage.streams()) {
      before_.push_back(shared_row("text", {time(encode)}, "streamed layer by layer: loading is part of it"));
      return;
    }
    before_.push_back(shared_row("load text_encoder", {time([&] { stage.load(); })}));
    std::vector<double> milliseconds;
    for (int64_t i = 0; i < warmup_ + repetitions_; ++i) {
      progress_.round(i, warmup_ + repetitions_);
      const double taken = time(encode);
      if (i >= warmup_) milliseconds.push_back(taken);
    }
    before_.push_back(shared_row("text", milliseconds));
    stage.release();
  }

  /// Loads the transformer and measures the steps. Each contender warms up; then they take turns step by step, all from
  /// the same noise. In each repetition, the time of one more step is split into matmul, attention and rest, and their
  /// shares are applied to the median step. For a contender with a cache, a turn is a whole run, and its time is not
  /// split, because its steps differ. A contender's failure becomes its row's note.
  void measure_steps() {
    progress_.stage("load transformer");
    models::reset_peak_memory(pipeline_.device());
    pipeline_.settle_memory(plan_.video);
    before_.push_back(shared_row("load transformer", {time([this] { pipeline_.load_transformer(); })}));
    progress_.stage("warm up");
    const std::vector<Combination>& contenders = plan_.grid.combinations;
    for (const Combination& contender : contenders) {
      Entry entry;
      entry.contender = contender;
      entry.video = plan_.video_of(contender);
      entry.row = step_row(contender);
      progress_.round(static_cast<int64_t>(entries_.size()), static_cast<int64_t>(contenders.size()));
      attempt(entry, [&] { warm_up(entry); });
      entries_.push_back(std::move(entry));
    }
    progress_.stage("denoise");
    for (int64_t repetition = 0; repetition < repetitions_; ++repetition) time_runs();
    for (Entry& entry : entries_) finish_steps(entry);
  }

  /// Loads the VAE's decoder, decodes the latents of each contender, and compares frames and latents with those of mode
  /// full. The steps are already measured, so a failure here or in a later stage does not end the run but becomes a
  /// note in the row.
  void measure_decode() {
    std::vector<Entry*> done;
    for (Entry& entry : entries_)
      if (entry.latents.defined()) done.push_back(&entry);
    if (plan_.decode && !done.empty()) decode_sound(done.front()->latents.sound);
    if (plan_.decode && !done.empty()) {
      progress_.stage("decode");
      pipeline_.release_transformer();
      models::reset_peak_memory(pipeline_.device());
      std::vector<double> milliseconds;
      const std::string failure = failure_of([&] {
        after_.push_back(shared_row("load vae", {time([this] { pipeline_.load_vae(); })}));
        if (!pipeline_.device().is_cpu()) decode(*done.front(), milliseconds);  // lets cuDNN choose its algorithms
        milliseconds.clear();
        for (int64_t i = 0; i < repetitions_; ++i)
          for (Entry* entry : done) decode(*entry, milliseconds);
      });
      if (!failure.empty()) {
        milliseconds.clear();
        for (Entry* entry : done) entry->frames.reset();
      }
      after_.push_back(shared_row("decode", milliseconds, failure.empty() ? decode_note_ : failure));
    }
    compare_with_full();
  }

  /// Measures the encoding of a video file: writes a video with its sound to a temporary file.
  void measure_encode() {
    const auto made =
        std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.frames.defined(); });
    if (made == entries_.end()) return;
    progress_.stage("encode");
    const char* name = media_report().libraries.empty() ? "video.y4m" : "video.mp4";
    std::vector<double> milliseconds;
    WrittenVideo written;
    const std::string failure = failure_of([&] {
      const models::Temporary folder(fs::temp_directory_path() / "sparsereel-bench", models::Temporary::Kind::folder);
      const FramesView frames = frames_view(made->frames);
      VideoOptions options = plan_.run.video;
      options.sound = sound_view(sound_);
      for (int64_t i = 0; i < repetitions_; ++i)
        milliseconds.push_back(time([&] { written = write_video(folder.path() / name, frames, options); }));
    });
    if (!failure.empty()) milliseconds.clear();
    const std::string encoder = written.encoder.empty() ? name : written.encoder;
    after_.push_back(shared_row("encode", milliseconds, failure.empty() ? encoder : failure));
  }

  int64_t text_tokens() const { return conditioning_.text.size(1); }

  /// Returns the rows measured so far, in the order in which a run has their stages.
  Rows rows() const {
    Rows rows = before_;
    for (const Entry& entry : entries_) rows.push_back(entry.row);
    rows.insert(rows.end(), after_.begin(), after_.end());
    return rows;
  }

 private:
  struct Entry {
    Combination contender;
    models::Plan video;
    Row row;
    std::unique_ptr<models::Denoising> denoising;
    std::vector<double> milliseconds;  // of each step; with a cache, the mean of each run
    std::vector<Split> splits;         // of one step in each repetition
    uint64_t peak_bytes = 0;
    models::Latents latents;  // on the CPU
    at::Tensor frames;        // on the CPU, [F, H, W, 3]

    bool cached() const { return contender.cache.on(); }
    bool failed() const { return row.contains("note"); }
  };

  /// Measures the encoding of the images and returns its row; returns nothing if there are no images.
  std::optional<Row> measure_image(models::Conditioning& images) const {
    if (!plan_.video.has_images()) return std::nullopt;
    progress_.stage("image");
    models::Run run;
    run.observer = &progress_;
    const double taken = time([&] { add_images(images, plan_.video, pipeline_, *plan_.pictures, nullptr, run); });
    return shared_row("image", {taken}, "loading the encoder is part of it");
  }

  double time(const std::function<void()>& call) const { return milliseconds_of(pipeline_.device(), call); }

  Row shared_row(const std::string& stage, const std::vector<double>& milliseconds,
                 const std::string& note = {}) const {
    Row row = stage_row(stage);
    if (!milliseconds.empty()) row.update(time_fields(spread(milliseconds)));
    if (!note.empty()) row["note"] = note;
    if (pipeline_.device().is_cpu()) return row;
    row["peak_gib"] = gibibytes(models::peak_memory(pipeline_.device()));
    models::reset_peak_memory(pipeline_.device());
    return row;
  }

  /// Runs the call. If it fails, its error becomes the note of the contender's row.
  void attempt(Entry& entry, const std::function<void()>& call) {
    const std::string failure = failure_of(call);
    if (failure.empty()) return;
    entry.row["note"] = failure;
    entry.denoising.reset();
  }

  void restart(Entry& entry) { entry.denoising = pipeline_.start_denoising(entry.video, conditioning_); }

  void warm_up(Entry& entry) {
    for (int64_t i = 0; i < warmup_; ++i) {
      if (!entry.denoising || entry.denoising->finished()) restart(entry);
      entry.denoising->step();
    }
    entry.denoising.reset();  // frees what the cache has stored, to make room for the other contenders
  }

  /// Splits the time of a step that comes after the dense first steps.
  void split_step(Entry& entry) {
    restart(entry);
    models::Denoising& denoising = *entry.denoising;
    const int64_t dense = std::min(entry.video.attention_policy.dense_steps, denoising.steps() - 1);
    while (denoising.done() < dense) denoising.step();
    denoising.load_expert();
    entry.splits.push_back(measure_split(pipeline_.device(), denoising.attention(), [&] { denoising.step(); }));
  }

  double time_step(Entry& entry) {
    models::reset_peak_memory(pipeline_.device());
    entry.denoising->load_expert();  // before the clock starts
    const double taken = time([&] { entry.denoising->step(); });
    entry.peak_bytes = std::max(entry.peak_bytes, models::peak_memory(pipeline_.device()));
    return taken;
  }

  /// Shows the progress of rounds. Contenders without a cache share a round; each contender with a cache has its own
  /// rounds.
  void next_round() {
    const auto cached = std::ranges::count_if(entries_, [](const Entry& entry) { return entry.cached(); });
    const int64_t sharing = cached < std::ssize(entries_) ? 1 : 0;
    progress_.round(rounds_++, repetitions_ * plan_.video.num_inference_steps * (cached + sharing));
  }

  void time_runs() {
    for (int64_t step = 0; step < plan_.video.num_inference_steps; ++step) {
      if (std::ranges::all_of(entries_, [](const Entry& entry) { return entry.cached(); })) break;
      next_round();
      for (Entry& entry : entries_) {
        if (entry.failed() || entry.cached()) continue;
        attempt(entry, [&] {
          if (step == 0) split_step(entry);
          if (step == 0) restart(entry);
          entry.milliseconds.push_back(time_step(entry));
        });
      }
    }
    for (Entry& entry : entries_)
      if (!entry.failed() && entry.cached()) attempt(entry, [&] { time_run(entry); });
  }

  void time_run(Entry& entry) {
    double sum = 0;
    for (restart(entry); !entry.denoising->finished();) {
      next_round();
      sum += time_step(entry);
    }
    entry.milliseconds.push_back(sum / static_cast<double>(entry.denoising->steps()));
  }

  void finish_steps(Entry& entry) {
    if (!entry.failed()) {
      Row& row = entry.row;
      const Spread time = spread(entry.milliseconds);
      row.update(time_fields(time));
      add_parts(entry.splits, time.median, row);
      add_attention(entry.denoising->attention(), row);
      if (!entry.denoising->warnings().empty()) row["note"] = entry.denoising->warnings().front();
      if (entry.peak_bytes > 0) row["peak_gib"] = gibibytes(entry.peak_bytes);
      entry.latents = entry.denoising->latents().to(at::kCPU).contiguous();
      if (const at::Tensor& sound = entry.denoising->sound(); sound.defined())
        entry.latents.sound = sound.to(at::kCPU).contiguous();
    }
    entry.denoising.reset();
  }

  /// Measures the decoding of the sound alone. A failure becomes the note of its row.
  void decode_sound(const at::Tensor& latents) {
    if (!latents.defined()) return;
    progress_.stage("sound");
    pipeline_.release_transformer();
    models::reset_peak_memory(pipeline_.device());
    std::vector<double> milliseconds;
    const std::string failure = failure_of([&] {
      for (int64_t i = 0; i < repetitions_; ++i) {
        progress_.stop_if_interrupted();
        milliseconds.push_back(time([&] { sound_ = pipeline_.decode_sound(latents); }));
      }
    });
    if (!failure.empty()) milliseconds.clear();
    after_.push_back(
        shared_row("sound", milliseconds, failure.empty() ? "loading its decoder is part of it" : failure));
  }

  void decode(Entry& entry, std::vector<double>& milliseconds) {
    progress_.stop_if_interrupted();
    models::Decoded decoded;
    milliseconds.push_back(time([&] { decoded = pipeline_.decode(entry.latents.video, plan_.video.vae_tiling); }));
    entry.frames = decoded.frames;
    decode_note_ = !decoded.warning.empty() ? decoded.warning : decoded.tiled ? "in tiles" : "";
  }

  void compare_with_full() {
    const auto full = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
      return entry.contender.mode == attention::Mode::full && !entry.cached() && entry.latents.defined();
    });
    if (full == entries_.end()) return;
    for (Entry& entry : entries_) {
      if (&entry == &*full || !entry.latents.defined()) continue;
      entry.row["rel_l1"] = relative_l1(entry.latents.video, full->latents.video);
      if (!entry.frames.defined()) continue;
      if (const auto decibels = psnr(entry.frames, full->frames)) entry.row["psnr"] = *decibels;
      entry.row["ssim"] = ssim(entry.frames, full->frames, pipeline_.device());
    }
  }

  const PipelinePlan& plan_;
  models::Pipeline& pipeline_;
  RunProgress& progress_;
  int64_t warmup_, repetitions_;
  int64_t rounds_ = 0;  // number of rounds of steps that have begun
  models::Conditioning conditioning_;
  std::vector<Entry> entries_;
  Rows before_, after_;  // rows of the shared stages before and after the steps
  std::string decode_note_;
  models::Sound sound_;  // empty if the model makes no sound
};

}  // namespace

void measure_stages(const PipelinePlan& plan, models::Pipeline& pipeline, RunProgress& progress,
                    const Measured& measured) {
  PipelineStages stages(plan, pipeline, progress);
  for (const auto stage : {&PipelineStages::measure_text, &PipelineStages::measure_steps,
                           &PipelineStages::measure_decode, &PipelineStages::measure_encode}) {
    (stages.*stage)();
    measured(stages.rows(), stages.text_tokens());
  }
}

}  // namespace sparsereel::app::bench
