// Denoises prompt by prompt, then times, then decodes.
#include "app/commands/bench/quality_runs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "app/measure/timing.h"

namespace sparsereel::app::bench {
namespace {

constexpr int64_t kPictureFrames = 6;

at::Tensor some_frames(const at::Tensor& frames) {
  const int64_t count = std::min(kPictureFrames, frames.size(0));
  const at::Tensor index = at::linspace(0, static_cast<double>(frames.size(0) - 1), count).round().to(at::kLong);
  return frames.index_select(0, index);
}

/// But for what the frames tell.
Row figures_of(const std::string& prompt, const models::AttentionRun& run) {
  const attention::Statistics& statistics = run.statistics;
  Row figures = {{"prompt", prompt},
                 {"psnr", nullptr},
                 {"ssim", nullptr},
                 {"rel_l1", nullptr},
                 {"predicted_error", nullptr},
                 {"sparsity", statistics.sparsity()},
                 {"mean_share", statistics.mean_share()},
                 {"computed_steps", static_cast<double>(models::computed_steps(run))}};
  if (run.mode == attention::Mode::check) figures["rel_l1"] = statistics.mean_relative_l1();
  if (statistics.predicted_tiles > 0) figures["predicted_error"] = statistics.predicted_error();
  return figures;
}

/// Of a step: with a cache the mean of a run's every step, since a few do not tell how many are reused.
Row milliseconds_of_a_step(const std::vector<double>& milliseconds, const Combination& combination, int64_t steps) {
  if (!combination.cache.on()) return step_milliseconds(milliseconds, combination.policy.dense_steps, steps);
  if (std::ssize(milliseconds) < steps) return {};
  return std::accumulate(milliseconds.begin(), milliseconds.end(), 0.0) / static_cast<double>(steps);
}

}  // namespace

QualityRuns::QualityRuns(const QualityPlan& plan, models::Pipeline& pipeline, models::Pipeline& reference,
                         RunProgress& progress, const Judge* judge)
    : plan_(plan),
      side_{pipeline},
      reference_{reference},
      progress_(progress),
      judge_(judge),
      full_(plan.full()),
      entries_(plan.grid.combinations.begin(), plan.grid.combinations.end()) {}

Rows QualityRuns::rows() const {
  Rows rows;
  for (const Entry& entry : entries_) rows.push_back(entry.row);
  for (Row& row : rows) summarise(row);
  return rows;
}

Row QualityRuns::full() const {
  Row row = full_.row;
  summarise(row);
  return row;
}

void QualityRuns::encode_prompts() {
  const auto prompts = static_cast<int64_t>(plan_.prompts.size());
  std::vector<models::Plan> videos;
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt)
    videos.push_back(plan_.video_of(prompt, full_.combination, attention::Mode::full));
  const auto encode = [&](models::Pipeline& pipeline) {
    return encode_texts(pipeline, videos, progress_, [&](int64_t done) { progress_.round(done, prompts); });
  };
  side_.texts = encode(side_.pipeline);
  const bool same = reference_.pipeline.fp8_text_weights() == side_.pipeline.fp8_text_weights();
  reference_.texts = same ? side_.texts : encode(reference_.pipeline);
}

/// Two transformers need not fit into memory: the other side's goes first.
void QualityRuns::begin(const std::string& stage, const Side& side) {
  if (reduces_weights()) (&side == &side_ ? reference_ : side_).pipeline.release_transformer();
  load_transformer(side.pipeline, progress_);
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

void QualityRuns::denoise() {
  begin("denoise", reference_);
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) run(reference_, full_, prompt);
  if (reduces_weights()) begin("denoise", side_);
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    for (Entry& entry : entries_) {
      const std::string failure = entry.failed ? "" : failure_of([&] { run(side_, entry, prompt); });
      if (failure.empty()) continue;
      entry.row["prompts"].clear();
      entry.row["note"] = failure;
      entry.latents.clear();
      entry.failed = true;
    }
  }
}

/// As many as asked for beyond the dense steps, so that both kinds of steps are among them.
int64_t QualityRuns::rounds_to_time() const {
  const auto& asked = plan_.options.timed_steps;
  if (!asked) return plan_.video.num_inference_steps;
  int64_t dense = 0;
  for (const Entry& entry : entries_) dense = std::max(dense, entry.combination.policy.dense_steps);
  return *asked == 0 ? 0 : std::min(plan_.video.num_inference_steps, dense + *asked);
}

double QualityRuns::time_step(const Side& side, Entry& entry) {
  progress_.stop_if_interrupted();
  entry.denoising->load_expert();  // no part of the step
  return milliseconds_of(side.pipeline.device(), [&] { entry.denoising->step(); });
}

/// A contender with a cache takes its turn run by run, so that what it remembers is not the others' memory, and none
/// where too few steps are timed to tell how many it reuses. Leaves the contenders without what they held to denoise.
void QualityRuns::take_turns(const Side& side, std::span<Entry*> all, int64_t rounds) {
  begin("time steps", side);
  const auto restart = [&](Entry& entry) { entry.denoising = start(side, entry, 0, attention::Mode::sparse); };
  const int64_t steps = plan_.video.num_inference_steps;
  const auto runs = rounds < steps ? 0 : std::ranges::count_if(all, [](const Entry* entry) { return entry->cached(); });
  int64_t done = 0;
  const auto next = [&] { progress_.round(done++, rounds + 1 + runs * steps); };
  for (int64_t round = -1; round < rounds; ++round) {  // the first warms up
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
      entry->milliseconds.push_back(time_step(side, *entry));
    }
    entry->denoising.reset();
  }
}

void QualityRuns::time_steps() {
  const int64_t rounds = rounds_to_time();
  if (rounds == 0) return;
  std::vector<Entry*> all = {&full_};
  for (Entry& entry : entries_)
    if (!entry.failed) all.push_back(&entry);
  const std::span turns(all);
  take_turns(side_, reduces_weights() ? turns.subspan(1) : turns, rounds);
  if (reduces_weights()) take_turns(reference_, turns.first(1), rounds);
  for (Entry* entry : all) {
    entry->row["step_ms"] =
        milliseconds_of_a_step(entry->milliseconds, entry->combination, plan_.video.num_inference_steps);
    entry->row["full_step_ms"] = full_.row["step_ms"];
  }
}

at::Tensor QualityRuns::decode(Entry& entry, const std::string& name, size_t prompt) {
  progress_.stop_if_interrupted();
  models::Run run;
  run.decode = [this](int64_t, int64_t) { progress_.stop_if_interrupted(); };
  const at::Tensor frames = side_.pipeline.decode(entry.latents[prompt], plan_.video.vae_tiling, run).frames;
  if (judge_ != nullptr)
    entry.row["prompts"][prompt]["judge"] = verdict(traits_of(plan_.prompts[prompt]), judge_->read(frames));
  if (prompt == 0 && !plan_.options.pictures.empty())
    pictures_.push_back({.name = name, .frames = some_frames(frames)});
  return frames;
}

void QualityRuns::compare() {
  progress_.stage("decode");
  reference_.pipeline.release_transformer();
  side_.pipeline.release_transformer();  // the decoder has its memory, the same for all videos
  side_.pipeline.load_vae();
  for (size_t prompt = 0; prompt < plan_.prompts.size(); ++prompt) {
    progress_.round(static_cast<int64_t>(prompt), static_cast<int64_t>(plan_.prompts.size()));
    const at::Tensor reference = decode(full_, "full", prompt);
    for (Entry& entry : entries_) {
      if (entry.failed) continue;
      const Nearness near =
          nearness(decode(entry, combination_name(entry.row), prompt), reference, side_.pipeline.device());
      entry.row["prompts"][prompt].update({{"psnr", near.psnr}, {"ssim", near.ssim}});
    }
  }
}

double step_milliseconds(const std::vector<double>& milliseconds, int64_t dense_steps, int64_t steps) {
  const int64_t timed = static_cast<int64_t>(milliseconds.size());
  const int64_t dense = std::clamp<int64_t>(dense_steps, 0, steps);
  const auto end_of_dense = milliseconds.begin() + std::min(dense, timed);
  const std::vector<double> first(milliseconds.begin(), end_of_dense), rest(end_of_dense, milliseconds.end());
  double sum = 0;
  if (dense > 0) sum += static_cast<double>(dense) * spread(first).median;
  if (dense < steps) sum += static_cast<double>(steps - dense) * spread(rest).median;
  return sum / static_cast<double>(steps);
}

}  // namespace sparsereel::app::bench
