// For each number of GPUs, starts a team of ranks and times the contenders' videos in turns.
#include "app/lab/bench/rank_stages.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "app/jobs/interrupt.h"
#include "app/jobs/video.h"
#include "app/lab/bench/rows.h"
#include "app/lab/measure/quality.h"
#include "app/links.h"
#include "app/ranks/asked_ranks.h"
#include "app/ranks/team.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/engine/denoising.h"
#include "models/layers/cpu_threads.h"
#include "models/parallel/metered_group.h"
#include "models/request/outcome.h"
#include "models/request/resolve.h"
#include "models/request/run.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::app::bench {
namespace {

bool is_alone(const Row& row) {
  return row["gpus"] == 1 && !row["grouped"];
}

double sum_of(const std::vector<double>& times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}

/// Returns the profile of a combination that has one.
const models::TunedProfile& profile_of(const PipelinePlan& plan, const Combination& combination) {
  return *std::ranges::find(plan.profiles, std::filesystem::path(combination.profile), &models::TunedProfile::file);
}

/// Returns a request that resolves to the combination. It must contain all settings, because the other ranks get only
/// the request.
models::Request request_of(const PipelinePlan& plan, const Combination& combination) {
  models::Request request = combination.selected(plan.request);
  request.policy.reset();  // it may be a profile's, which only the profile's contender uses
  request.attention_mode = combination.mode;
  request.token_order = combination.order;
  request.cache = combination.cache;
  if (combination.by_head()) models::use_heads(profile_of(plan, combination), request);
  return request;
}

/// Measures the steps of a video, and the exchange between ranks in each step.
struct TimedSteps final : models::RunObserver {
  explicit TimedSteps(models::ExchangeMeter& ranks) : meter(ranks) {}

  void step(const models::StepDone& step) override {
    milliseconds.push_back(step.seconds * 1000);
    exchange.push_back(meter.take());
  }

  models::ExchangeMeter& meter;
  std::vector<double> milliseconds, exchange;
};

/// The times of a contender's videos for one number of GPUs.
struct Entry {
  Row row;
  VideoTask video;
  std::vector<double> steps = {};                        // milliseconds of each step of all videos
  std::vector<double> milliseconds = {}, exchange = {};  // of each step; with a cache, only the mean of each video
  std::vector<double> decode = {}, sound = {};           // seconds
  models::Outcome last = {};

  bool cached() const { return video.plan.cache.on(); }
  bool failed() const { return row.contains("note"); }
  bool is_full() const { return text_of(row, "mode") == "full" && !cached(); }
};

class RankStages {
 public:
  RankStages(const Settings& settings, const PipelinePlan& plan, int64_t fewest_ranks, models::Pipeline& pipeline,
             RunProgress& progress)
      : plan_(plan), pipeline_(pipeline), progress_(progress), meter_(pipeline.device()) {
    const bool cpu = pipeline.device().is_cpu();
    warmup_ = plan.options.warmup.value_or(cpu ? 1 : 2);
    repetitions_ = plan.options.repetitions.value_or(cpu ? 1 : 3);
    model_.run = plan.run;
    model_.request = plan.request;
    for (const Combination& combination : plan.grid.combinations) {
      VideoTask& video = videos_.emplace_back();
      video.settings = settings;
      video.options.run = plan.run;
      video.options.request = request_of(plan, combination);
      if (combination.by_head()) video.options.profile = profile_of(plan, combination);
      video.plan = pipeline.resolve(video.options.request, plan.decode, fewest_ranks);
    }
  }

  void check(const std::vector<GpuCount>& counts) const {
    for (const GpuCount& count : counts) {
      if (!count.together) continue;
      devices_of(count);
      for (const VideoTask& video : videos_) pipeline_.check_ranks(video.plan, count.gpus);
    }
  }

  void measure_text() {
    const double began = Timer::now();
    conditioning_ = encode_texts(pipeline_, {plan_.video}, *plan_.pictures, progress_, [](int64_t) {}).front();
    text_ms_ = Timer::now() - began;
    progress_.stage("load transformer");
    pipeline_.load_transformer();  // onto the GPU as a whole: ranks that share a video do not stream blocks
  }

  void measure(const GpuCount& count) {
    std::vector<Entry> entries;
    for (size_t i = 0; i < videos_.size(); ++i)
      entries.push_back({.row = rank_row(plan_.grid.combinations[i], count), .video = videos_[i]});
    progress_.stage(std::to_string(count.gpus) + (pipeline_.device().is_cpu() ? " ranks" : " GPUs"));
    const int threads = threads_of(count);
    models::set_threads(threads);
    Team team(devices_of(count), threads, count.together);
    team.use(model_);
    const bool decodes = plan_.decode && !pipeline_.device().is_cpu();
    for (Entry& entry : entries)
      attempt(team, entry, [&] { warm_up(team, entry, /*whole=*/decodes && &entry == &entries.front()); });
    const int64_t videos = repetitions_ * std::ssize(entries);
    for (int64_t i = 0; i < videos; ++i) {
      progress_.round(i, videos);
      Entry& entry = entries[static_cast<size_t>(i % std::ssize(entries))];
      if (!entry.failed()) attempt(team, entry, [&] { time_video(team, entry); });
    }
    team.finish();
    for (Entry& entry : entries) finish(entry);
    compare_with_full(entries);
    for (const Entry& entry : entries) rows_.push_back(entry.row);
  }

  const Rows& rows() const { return rows_; }
  double text_ms() const { return text_ms_; }
  int64_t text_tokens() const { return conditioning_.text.size(1); }

 private:
  std::vector<std::string> devices_of(const GpuCount& count) const {
    const std::string device = pipeline_.device().is_cpu() ? "cpu"
                               : count.gpus == 1           ? pipeline_.device().str()
                                                           : "auto";
    if (count.gpus == 1) return {device};
    return devices_of_ranks_here(count.gpus, device);
  }

  int threads_of(const GpuCount& count) const {
    const bool share = pipeline_.device().is_cpu() && count.gpus > 1 && !plan_.run.threads;
    return share ? threads_of_each(count.gpus) : threads_;
  }

  /// Runs the call. If it fails, its error becomes the note of the contender's row; but if a rank was lost, the run
  /// ends.
  static void attempt(Team& team, Entry& entry, const std::function<void()>& call) {
    const std::string failure = failure_of(call);
    if (failure.empty()) return;
    entry.row["note"] = failure;
    team.after_failure();
  }

  models::Outcome make(Team& team, const VideoTask& video, const models::Run& run) {
    const models::Inputs inputs = {.conditioning = conditioning_, .decode = plan_.decode, .keep_transformer = true};
    World* const world = team.ready();
    if (world == nullptr) return pipeline_.generate(video.plan, inputs, run);
    world->group_maker().observe(meter_);
    return models::lead_video(*world, pipeline_, video.options.request, video.plan, inputs, run);
  }

  /// Makes the warm-up steps of a video, which all ranks then abandon together. If `whole`, makes the whole video with
  /// its frames, because the first decode takes longer: cuDNN chooses its algorithms, and the other ranks load the
  /// decoder.
  void warm_up(Team& team, const Entry& entry, bool whole) {
    if (warmup_ == 0) return;
    TimedSteps steps(meter_);
    models::Run run;
    run.observer = &steps;
    run.cancelled = [&] { return (std::ssize(steps.milliseconds) >= warmup_ && !whole) || interrupted(); };
    try {
      make(team, entry.video, run);
    } catch (const models::Cancelled&) {
      progress_.stop_if_interrupted();
    }
  }

  void time_video(Team& team, Entry& entry) {
    TimedSteps steps(meter_);
    models::Run run;
    run.cancelled = interrupted;
    run.observer = &steps;
    meter_.take();  // resets the meter
    try {
      entry.last = make(team, entry.video, run);
    } catch (const models::Cancelled&) {
      progress_.stop_if_interrupted();
      throw;
    }
    entry.steps.insert(entry.steps.end(), steps.milliseconds.begin(), steps.milliseconds.end());
    add_times(entry.cached(), steps.milliseconds, entry.milliseconds);
    add_times(entry.cached(), steps.exchange, entry.exchange);
    if (plan_.decode) entry.decode.push_back(entry.last.seconds.decode);
    if (entry.last.sound.samples.defined()) entry.sound.push_back(entry.last.seconds.decode_sound);
  }

  /// Adds the times of a video's steps; with a cache only their mean. Computed and reused steps differ, so a median
  /// would show only one kind.
  static void add_times(bool cached, const std::vector<double>& of_steps, std::vector<double>& times) {
    if (cached)
      times.push_back(sum_of(of_steps) / static_cast<double>(of_steps.size()));
    else
      times.insert(times.end(), of_steps.begin(), of_steps.end());
  }

  static void finish(Entry& entry) {
    if (entry.failed()) {
      entry.last = {};
      return;
    }
    Row& row = entry.row;
    row.update(time_fields(spread(entry.milliseconds)));
    row["steps_ms"] = entry.steps;
    add_exchange(entry);
    if (!entry.decode.empty()) row["decode_seconds"] = spread(entry.decode).median;
    if (!entry.sound.empty()) row["sound_seconds"] = spread(entry.sound).median;
    add_attention(entry.last.attention, row);
    if (!entry.last.warnings.empty()) row["note"] = entry.last.warnings.front();
    if (entry.last.memory.denoise > 0) row["peak_gib"] = gibibytes(entry.last.memory.largest());
  }

  static void add_exchange(Entry& entry) {
    if (is_alone(entry.row)) return;
    entry.row["exchange_ms"] = spread(entry.exchange).median;
    entry.row["exchange_percent"] = 100 * sum_of(entry.exchange) / sum_of(entry.milliseconds);
  }

  /// Compares the other entries with the entry of mode full, even those that come before it in the list.
  void compare_with_full(std::vector<Entry>& entries) {
    const Entry* full = nullptr;  // the entry of mode full, which is not compared with itself
    for (const Entry& entry : entries) {
      if (full_.latents.defined() || !entry.is_full()) continue;
      full_ = entry.last;
      full = &entry;
    }
    if (!full_.latents.defined()) return;
    for (Entry& entry : entries) {
      if (&entry == full || !entry.last.latents.defined()) continue;
      entry.row["rel_l1"] = relative_l1(entry.last.latents.video, full_.latents.video);
      if (!full_.frames.defined()) continue;
      if (const auto decibels = psnr(entry.last.frames, full_.frames)) entry.row["psnr"] = *decibels;
    }
  }

  const PipelinePlan& plan_;
  models::Pipeline& pipeline_;
  RunProgress& progress_;
  models::ExchangeMeter meter_;
  int64_t warmup_, repetitions_;
  const int threads_ = at::get_num_threads();  // CPU threads if one rank makes a video alone
  GenerateOptions model_;
  std::vector<VideoTask> videos_;  // one per combination
  models::Conditioning conditioning_;
  models::Outcome full_;  // the video of mode full on the first number of GPUs
  double text_ms_ = 0;
  Rows rows_;
};

std::string combination_of(Row row) {
  row.erase("gpus");
  return row_name(row);
}

/// Returns the first row of the same combination for which `fits` is true; null if there is none, or if it was not
/// measured.
template <typename Fits>
const Row* find_alike(const Rows& rows, const Row& row, const Fits& fits) {
  const auto found = std::ranges::find_if(
      rows, [&](const Row& other) { return fits(other) && combination_of(other) == combination_of(row); });
  return found == rows.end() || !number_of(*found, "ms") ? nullptr : &*found;
}

void add_expected(const Rows& rows, const VideoCost& video, double link_speed, Row& row) {
  const int64_t gpus = row["gpus"];
  if (gpus == 1 || link_speed == 0) return;
  VideoCost cost = video;
  if (const Row* alone = find_alike(rows, row, is_alone)) cost.step_ms = *number_of(*alone, "ms");
  const RanksCost expected = cost_over_ranks(cost, gpus, link_speed);
  row["expected_exchange_ms"] = expected.exchange_ms;
  if (expected.step_ms > 0) row["expected_ms"] = expected.step_ms;
}

}  // namespace

std::vector<GpuCount> gpu_counts(const Settings& settings, const Lists& lists) {
  const auto list = lists.find("gpus");
  const std::string text = list != lists.end() && list->second ? *list->second : settings.text("gpus", "1");
  const bool of_one = find_group_choice(process_environment).of_one;
  std::vector<GpuCount> counts;
  for (const std::string& item : split(text, ',')) {
    const auto count = parse_number<int64_t>(item);
    if (!count || *count < 1 || *count > 64)
      throw bad_option("gpus", item + " is not a number of GPUs from 1 to 64", "write for example --gpus 1,2,4");
    if (std::ranges::find(counts, *count, &GpuCount::gpus) != counts.end()) continue;
    counts.push_back({.gpus = *count, .together = *count > 1});
    if (*count == 1 && of_one) counts.push_back({.gpus = 1, .together = true});
  }
  return counts;
}

std::string first_device(const std::vector<GpuCount>& counts, const std::string& device) {
  std::string first = device;
  if (!any_together(counts)) return first;
  if (const auto launched = find_launched(process_environment); launched && launched->size > 1)
    throw bad_option("gpus",
                     "is for a command that starts ranks itself, but " + launched->source + " has started " +
                         std::to_string(launched->size),
                     "run bench without that launcher");
  for (const GpuCount& count : counts)
    if (count.gpus > 1) first = devices_of_ranks_here(count.gpus, device).front();
  return first;
}

bool any_together(const std::vector<GpuCount>& counts) {
  return std::ranges::any_of(counts, &GpuCount::together);
}

int64_t fewest(const std::vector<GpuCount>& counts) {
  return std::ranges::min(counts, {}, &GpuCount::gpus).gpus;
}

VideoCost video_cost(const models::ModelSpec& spec, const models::Plan& video) {
  return {.tokens = models::token_count(spec, video.latent, video.text_tokens),
          .layers = spec.layers,
          .heads = spec.heads,
          .channels = static_cast<double>(spec.heads * spec.head_dim),
          .passes = video.is_guided() ? 2 : 1};
}

Columns rank_columns() {
  return joined(
      {columns({"mode"}), selection_columns(), columns({"token_order", "cache", "gpus"}), time_columns("ms a step"),
       columns({"scaling", "exchange_ms", "exchange_percent", "expected_ms", "expected_exchange_ms", "speedup",
                "decode_seconds", "decode_scaling", "sound_seconds", "video_seconds", "sparsity", "psnr"}),
       Columns{latents_column()}, columns({"peak_gib", "kernel", "note"})});
}

Row rank_row(const Combination& combination, const GpuCount& count) {
  Row row = step_row(combination);
  for (const char* unknown : {"scaling", "exchange_ms", "exchange_percent", "expected_ms", "expected_exchange_ms",
                              "decode_seconds", "decode_scaling", "sound_seconds"})
    row[unknown] = nullptr;
  row.update({{"gpus", count.gpus}, {"grouped", count.together && count.gpus == 1}});
  return row;
}

void compare_counts(Rows& rows, const VideoCost& video, double link_speed, int64_t steps, double text_ms) {
  for (Row& row : rows) {
    const auto ms = number_of(row, "ms"), decode = number_of(row, "decode_seconds");
    if (!ms) continue;
    for (const Row& full : rows)
      if (text_of(full, "mode") == "full" && full["cache"].is_null() && full["gpus"] == row["gpus"] &&
          full["grouped"] == row["grouped"] && number_of(full, "ms"))
        row["speedup"] = *number_of(full, "ms") / *ms;
    const auto any = [](const Row&) { return true; };
    if (const Row* first = find_alike(rows, row, any); first != nullptr && first != &row) {
      row["scaling"] = *number_of(*first, "ms") / *ms;
      const auto before = number_of(*first, "decode_seconds");
      if (decode && before) row["decode_scaling"] = *before / *decode;
    }
    const double sound = number_of(row, "sound_seconds").value_or(0);
    if (decode) row["video_seconds"] = (text_ms + static_cast<double>(steps) * *ms) / 1000 + *decode + sound;
    add_expected(rows, video, link_speed, row);
  }
}

void measure_over_ranks(const Settings& settings, const PipelinePlan& plan, const std::vector<GpuCount>& counts,
                        models::Pipeline& pipeline, RunProgress& progress, const Measured& measured) {
  RankStages stages(settings, plan, fewest(counts), pipeline, progress);
  stages.check(counts);
  const double speed = pipeline.device().is_cpu() ? 0 : link_speed(find_gpu_links());
  stages.measure_text();
  models::Plan video = plan.video;
  if (!pipeline.spec().prompt.has_length)
    video.text_tokens = stages.text_tokens() + models::keyframe_tokens(video, pipeline.spec());
  const VideoCost cost = video_cost(pipeline.spec(), video);
  for (const GpuCount& count : counts) {
    stages.measure(count);
    Rows rows = stages.rows();
    compare_counts(rows, cost, speed, plan.video_steps, stages.text_ms());
    measured(std::move(rows), stages.text_tokens());
  }
}

}  // namespace sparsereel::app::bench
