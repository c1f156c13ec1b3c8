// Makes the latents prompt by prompt, then times steps, then decodes and compares frames.
#include "app/lab/bench/quality_runs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <ranges>

#include "app/lab/bench/comparison.h"
#include "app/lab/measure/timing.h"
#include "models/request/attention_run.h"
#include "models/request/run.h"

namespace sparsereel::app::bench {
namespace {

constexpr int64_t kPictureFrames = 6;

/// A statistic of a time, and the ending that the keys of its fields have in a row.
struct TimeFigure {
  std::string ending;
  double Spread::*figure;
};
const TimeFigure kTimeFigures[] = {
    {"", &Spread::median}, {"_lower_quartile", &Spread::lower_quartile}, {"_upper_quartile", &Spread::upper_quartile}};

at::Tensor some_frames(const at::Tensor& frames) {
  const int64_t count = std::min(kPictureFrames, frames.size(0));
  const at::Tensor index = at::linspace(0, static_cast<double>(frames.size(0) - 1), count).round().to(at::kLong);
  return frames.index_select(0, index);
}

/// Returns the figures of a prompt's video. The figures that need frames stay empty.
Row figures_of(const std::string& prompt, const models::AttentionRun& run) {
  const attention::Statistics& statistics = run.statistics;
  Row figures = {{"prompt", prompt},
                 {"psnr", nullptr},
                 {"ssim", nullptr},
                 {"ms_ssim", nullptr},
                 {"rel_l1", nullptr},
                 {"predicted_error", nullptr},
                 {"sparsity", statistics.sparsity()},
                 {"mean_share", statistics.mean_share()},
                 {"computed_steps", static_cast<double>(models::computed_steps(run))},
                 {"computed_dense_steps", nullptr},
                 {"kept_share", nullptr}};
  if (run.mode == attention::Mode::check) figures["rel_l1"] = statistics.mean_relative_l1();
  if (attention::drops_blocks(run.mode))
    figures["computed_dense_steps"] = static_cast<double>(models::computed_dense_steps(run));
  if (const auto share = models::kept_share(run)) figures["kept_share"] = *share;
  if (statistics.predicted_tiles > 0) figures["predicted_error"] = statistics.predicted_error();
  return figures;
}

}  // namespace

Pipelines open_pipelines(const QualityPlan& plan, const models::Checkpoint& folder) {
  models::Request request = plan.request;
  request.weights = request.text_weights = "auto";
  Pipelines all{.reference = models::Pipeline::open(folder, request)};
  request.text_weights = plan.request.text_weights;
  for (const Combination& row : plan.grid.combinations) {
    if (all.by_weights.contains(row.weights)) continue;
    request.weights = row.weights;
    all.by_weights[row.weights] = models::Pipeline::open(folder, request);
  }
  return all;
}

QualityRuns::QualityRuns(const QualityPlan& plan, const Pipelines& pipelines, RunProgress& progress,
                         const Classifier* judge)
    : plan_(plan), progress_(progress), classifier_(judge), full_(plan.full(), "full"), sides_{{*pipelines.reference}} {
  const std::vector<Combination>& rows = plan.grid.combinations;
  const std::vector<std::string> names = names_of(rows);
  for (size_t i = 0; i < rows.size(); ++i) entries_.emplace_back(rows[i], names[i]);
  for (Entry& entry : entries_) {
    models::Pipeline& own = *pipelines.by_weights.at(entry.combination.weights);
    // If the row has no 8-bit weights, use the reference instead of loading the same model twice.
    models::Pipeline& pipeline = own.weights() != "auto" || own.text_weights() != "auto" ? own : *pipelines.reference;
    auto side = std::ranges::find_if(sides_, [&](const Side& each) { return &each.pipeline == &pipeline; });
    if (side == sides_.end()) {
      sides_.push_back({pipeline});
      side = sides_.end() - 1;
    }
    side->entries.push_back(&entry);
  }
}

Rows QualityRuns::rows() const {
  Rows rows;
  for (const Entry& entry : entries_) {
    rows.push_back(entry.row);
    summarise(rows.back(), plan_.times, plan_.video.num_inference_steps);
  }
  if (plan_.against) compare_prompts(rows, *plan_.against);
  mark_beaten(rows);
  return rows;
}

Row QualityRuns::full() const {
  Row row = full_.row;
  summarise(row, plan_.times, plan_.video.num_inference_steps);
  return row;
}

void QualityRuns::encode_prompts() {
  const auto prompts = static_cast<int64_t>(plan_.prompts.size());
  std::vector<models::Plan> videos;
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt)
    videos.push_back(plan_.video_of(prompt, full_.combination, attention::Mode::full));
  for (Side& side : sides_) {
    const auto same = std::ranges::find_if(sides_, [&](const Side& other) {
      return !other.texts.empty() && other.pipeline.text_weights() == side.pipeline.text_weights();
    });
    const auto count = [&](int64_t done) { progress_.round(done, prompts); };
    side.texts =
        same != sides_.end() ? same->texts : encode_texts(side.pipeline, videos, *plan_.pictures, progress_, count);
  }
}

int64_t QualityRuns::text_tokens() const {
  int64_t most = 0;
  for (const models::Conditioning& text : sides_.front().texts) most = std::max(most, text.text.size(1));
  return most;
}

/// Begins a stage on one pipeline. First releases the transformers of the others, because two may not fit into memory.
void QualityRuns::begin(const std::string& stage, const Side& side) {
  for (const Side& other : sides_)
    if (&other != &side) other.pipeline.release_transformer();
  load_transformer(side.pipeline, plan_.video, progress_);
  progress_.stage(stage);
}

std::unique_ptr<models::Denoising> QualityRuns::start(const Side& side, const Entry& entry, size_t prompt,
                                                      attention::Mode mode) {
  return side.pipeline.start_denoising(plan_.video_of(prompt, entry.combination, mode), side.texts[prompt]);
}

void QualityRuns::run(const Side& side, Entry& entry, size_t prompt) {
  const auto videos = static_cast<int64_t>(plan_.prompts.size() * (entries_.size() + 1));
  const int64_t before = videos_++ * plan_.video.num_inference_steps;
  const auto denoising =
      start(side, entry, prompt, plan_.options.no_rel_l1 ? attention::Mode::sparse : attention::Mode::check);
  while (!denoising->finished()) {
    progress_.round(before + denoising->done(), videos * plan_.video.num_inference_steps);
    denoising->step();
  }
  const models::AttentionRun& attention = denoising->attention();
  entry.row["prompts"].push_back(figures_of(plan_.prompts[prompt], attention));
  entry.row["kernel"] = attention.kernel;
  if (!denoising->warnings().empty()) entry.row["note"] = denoising->warnings().front();
  entry.latents.push_back(denoising->latents().to(at::kCPU).contiguous());
}

void QualityRuns::run_all(const Side& side) {
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    for (Entry* entry : side.entries) {
      const std::string failure = entry->failed ? "" : failure_of([&] { run(side, *entry, prompt); });
      if (failure.empty()) continue;
      entry->row["prompts"].clear();
      entry->row["note"] = failure;
      entry->latents.clear();
      entry->failed = true;
    }
  }
}

void QualityRuns::denoise() {
  for (const Side& side : sides_) {
    begin("denoise", side);
    for (size_t prompt = 0; prompt < plan_.prompts.size() && &side == &sides_.front(); ++prompt)
      run(side, full_, prompt);
    run_all(side);
  }
}

double QualityRuns::time_step(const Side& side, Entry& entry) {
  progress_.stop_if_interrupted();
  entry.denoising->load_expert();  // loading is not part of the step
  return milliseconds_of(side.pipeline.device(), [&] { entry.denoising->step(); });
}

/// Times the contenders in turns. Contenders without a cache take turns step by step. Then each contender with a cache
/// makes a whole run alone, so that its cache shares memory with no other. If fewer steps are timed than a video has,
/// contenders with a cache are not timed, because a few steps would not show how many are reused. In the end, all
/// denoisings are released.
void QualityRuns::take_turns(const Side& side, std::span<Entry*> all, int64_t rounds) {
  begin("time steps", side);
  const auto restart = [&](Entry& entry) { entry.denoising = start(side, entry, 0, attention::Mode::sparse); };
  const int64_t steps = plan_.video.num_inference_steps;
  const auto runs = rounds < steps ? 0 : std::ranges::count_if(all, [](const Entry* entry) { return entry->cached(); });
  int64_t done = 0;
  const auto next = [&] { progress_.round(done++, rounds + 1 + runs * steps); };
  for (int64_t round = -1; round < rounds; ++round) {  // the first round warms up
    next();
    for (Entry* entry : all) {
      if (entry->cached()) continue;
      if (round <= 0) restart(*entry);
      const double taken = time_step(side, *entry);
      if (round >= 0) entry->milliseconds.push_back(taken);
    }
  }
  for (Entry* entry : all) entry->denoising.reset();
  for (Entry* entry : all) {
    if (!entry->cached() || runs == 0) continue;
    for (restart(*entry); !entry->denoising->finished();) {
      next();
      const int64_t computed = models::computed_steps(entry->denoising->attention());
      entry->milliseconds.push_back(time_step(side, *entry));
      entry->computed.push_back(models::computed_steps(entry->denoising->attention()) > computed);
    }
    entry->denoising.reset();
  }
}

void QualityRuns::add_times(Entry& entry) const {
  const int64_t steps = plan_.video.num_inference_steps;
  const std::vector<double>& all = entry.milliseconds;
  Row& row = entry.row;
  if (!entry.cached()) {
    for (const TimeFigure& each : kTimeFigures) {
      const double step = step_milliseconds(all, entry.combination.policy.dense_steps, steps, each.figure);
      row["step_ms" + each.ending] = step;
      row["denoise_seconds" + each.ending] = step * static_cast<double>(steps) / 1000;
    }
  } else if (std::ssize(all) == steps) {  // else untimed: a few steps do not show how many are reused
    row.update(times_of_cached(all, entry.computed));
  }
  for (const TimeFigure& each : kTimeFigures)
    for (const std::string key : {"step_ms", "denoise_seconds"})
      row["full_" + key + each.ending] = full_.row[key + each.ending];
}

void QualityRuns::time_steps() {
  const int64_t rounds = plan_.rounds_to_time();
  if (rounds == 0) return;
  std::vector<Entry*> timed;
  for (Side& side : sides_ | std::views::reverse) {
    std::vector<Entry*> turns;
    if (&side == &sides_.front()) turns.push_back(&full_);
    std::ranges::copy_if(side.entries, std::back_inserter(turns), [](const Entry* entry) { return !entry->failed; });
    if (!turns.empty()) take_turns(side, turns, rounds);
    timed.insert(timed.end(), turns.begin(), turns.end());
  }
  add_times(full_);
  for (Entry* entry : timed) add_times(*entry);
}

at::Tensor QualityRuns::decode(Entry& entry, const std::string& name, size_t prompt) {
  progress_.stop_if_interrupted();
  models::Run run;
  run.observer = &progress_;
  const at::Tensor frames = sides_.front().pipeline.decode(entry.latents[prompt], plan_.video.vae_tiling, run).frames;
  if (classifier_ != nullptr)
    entry.row["prompts"][prompt]["judge"] = verdict(traits_of(plan_.prompts[prompt]), classifier_->read(frames));
  if (prompt == 0 && !plan_.options.pictures.empty())
    pictures_.push_back({.name = name, .frames = some_frames(frames)});
  return frames;
}

void QualityRuns::compare() {
  progress_.stage("decode");
  for (const Side& side : sides_) side.pipeline.release_transformer();  // make room for the decoder
  models::Pipeline& pipeline = sides_.front().pipeline;                 // all pipelines have the same decoder
  pipeline.load_vae();
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    progress_.round(static_cast<int64_t>(prompt), static_cast<int64_t>(plan_.prompts.size()));
    const at::Tensor reference = decode(full_, "full", prompt);
    for (Entry& entry : entries_) {
      if (entry.failed) continue;
      const at::Tensor frames = decode(entry, combination_name(entry.row), prompt);
      const Fidelity near = fidelity(frames, reference, pipeline.device());
      entry.row["prompts"][prompt].update({{"psnr", near.psnr}, {"ssim", near.ssim}});
      if (const auto scales = ms_ssim(frames, reference, pipeline.device()))
        entry.row["prompts"][prompt]["ms_ssim"] = *scales;
    }
  }
}

Row times_of_cached(const std::vector<double>& milliseconds, const std::vector<bool>& computed) {
  std::vector<double> own, reused;
  for (size_t i = 0; i < milliseconds.size(); ++i) (computed[i] ? own : reused).push_back(milliseconds[i]);
  const auto sum = [](const std::vector<double>& times) { return std::accumulate(times.begin(), times.end(), 0.0); };
  const double step = sum(own) / static_cast<double>(own.size()), seconds = (sum(own) + sum(reused)) / 1000;
  Row row = {{"step_ms", step}, {"denoise_seconds", seconds}};
  for (const auto& [ending, bound, figure] : {std::tuple("_lower_quartile", -1.0, &Spread::lower_quartile),
                                              {"_upper_quartile", 1.0, &Spread::upper_quartile}}) {
    const double own_ms = spread(own).*figure, reused_ms = reused.empty() ? 0 : spread(reused).*figure;
    const double all = own_ms * static_cast<double>(own.size()) + reused_ms * static_cast<double>(reused.size());
    // A mean may lie outside of the quartiles, so widen them to contain it.
    row[std::string("step_ms") + ending] = bound * std::max(bound * step, bound * own_ms);
    row[std::string("denoise_seconds") + ending] = bound * std::max(bound * seconds, bound * all / 1000);
  }
  return row;
}

double step_milliseconds(const std::vector<double>& milliseconds, int64_t dense_steps, int64_t steps,
                         double Spread::*figure) {
  const int64_t timed = static_cast<int64_t>(milliseconds.size());
  const int64_t dense = std::clamp<int64_t>(dense_steps, 0, steps);
  const auto end_of_dense = milliseconds.begin() + std::min(dense, timed);
  const std::vector<double> first(milliseconds.begin(), end_of_dense), rest(end_of_dense, milliseconds.end());
  double sum = 0;
  if (dense > 0) sum += static_cast<double>(dense) * (spread(first).*figure);
  if (dense < steps) sum += static_cast<double>(steps - dense) * (spread(rest).*figure);
  return sum / static_cast<double>(steps);
}

}  // namespace sparsereel::app::bench
