// `sparsereel generate`: makes the videos of one prompt as a job, prints progress and fills the report.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <set>
#include <utility>

#include "app/clock.h"
#include "app/commands/commands.h"
#include "app/commands/dry_run.h"
#include "app/counted.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/job.h"
#include "app/jobs/last_line.h"
#include "app/jobs/preset_lines.h"
#include "app/jobs/progress.h"
#include "app/jobs/used_files.h"
#include "app/links.h"
#include "app/options/options.h"
#include "app/ranks/shared_model.h"
#include "attention/attention.h"
#include "models/engine/denoising.h"
#include "models/engine/failure.h"
#include "models/layers/cpu_threads.h"
#include "models/request/attention_run.h"
#include "models/request/outcome.h"
#include "models/request/run.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// The output that the command line gives, before the files of several videos are numbered.
struct GivenOutput {
  fs::path path;
  bool is_named = true;          // true if the user named it
  bool has_random_seed = false;  // true if the first seed was drawn at random
};

/// Seconds of those parts of a run that models::StageSeconds does not count, and of the whole run.
struct EndSeconds {
  double start = 0, libraries = 0, open = 0, write = 0, total = 0;
};

nlohmann::json seconds_report(const models::StageSeconds& seconds, const EndSeconds& ends) {
  nlohmann::json loads = {{"text_encoder", seconds.load_text_encoder},
                          {"transformer", seconds.load_transformer},
                          {"vae", seconds.load_vae}};
  if (seconds.switch_transformer > 0) loads["switch_transformer"] = seconds.switch_transformer;
  nlohmann::json report = {{"start", ends.start},      {"libraries", ends.libraries}, {"open", ends.open},
                           {"check", seconds.check},   {"text", seconds.text},        {"load", seconds.load()},
                           {"loads", loads},           {"denoise", seconds.denoise},  {"keep", seconds.keep},
                           {"decode", seconds.decode}, {"write", ends.write},         {"steps", seconds.steps},
                           {"total", ends.total}};
  if (seconds.decode_sound > 0) report["decode_sound"] = seconds.decode_sound;
  return report;
}

std::string attention_summary(const models::AttentionRun& run) {
  const std::string mode(attention::name(run.mode));
  if (run.mode == attention::Mode::full) return mode + " attention";
  const attention::Statistics& statistics = run.statistics;
  std::string text = mode + " attention, sparsity " + fixed(statistics.sparsity() * 100, 1) + "%";
  if (statistics.mean_blocks > 0)
    text += " (the means of dropped blocks cost " + fixed(statistics.mean_share() * 100, 1) + "%)";
  if (run.mode != attention::Mode::check) return text;
  text += ", relative L1 " + fixed(statistics.mean_relative_l1(), 4);
  if (statistics.predicted_tiles > 0) text += ", predicted error " + fixed(statistics.predicted_error(), 4);
  return text;
}

/// Returns how many steps were computed; an empty string if no cache was asked for.
std::string cache_summary(const models::CacheRule& rule, const models::AttentionRun& run) {
  if (!rule.on()) return {};
  return ", " + std::to_string(models::computed_steps(run)) + " of " + counted(std::ssize(run.per_step), "step") +
         " computed";
}

/// Returns "star.mp4: 4.1 s of video, 256x256, made in 16 s, preset balanced", with the seed if `tells_seed`.
std::string last_line(const VideoTask& video, const models::VideoShape& shape, const WrittenSound& sound,
                      double seconds, bool tells_seed) {
  const std::string note = shape_note(video.plan), preset = preset_name(video);
  std::string text = video_text(video.options.run, shape) + (note.empty() ? "" : " " + note);
  text += sound_text(sound) + ", made in " + duration_text(seconds);
  if (video.resumed_at_step > 0) text += " from step " + std::to_string(video.resumed_at_step) + " on";
  if (!preset.empty()) text += ", " + preset;
  return text + (tells_seed ? ", seed " + std::to_string(video.plan.seed) : "");
}

/// Returns the lines that --verbose adds after the last line.
std::string details(const VideoTask& video, const models::Outcome& result, const EndSeconds& ends,
                    const nlohmann::json& memory) {
  const models::StageSeconds& seconds = result.seconds;
  return counted(result.facts.shape.frames, "frame") + ", " + fixed(ends.total, 1) + " s (text " +
         fixed(seconds.text, 1) + ", load " + fixed(seconds.load(), 1) + ", denoise " + fixed(seconds.denoise, 1) +
         ", decode " + fixed(seconds.decode, 1) +
         (seconds.decode_sound > 0 ? ", sound " + fixed(seconds.decode_sound, 1) : "") + ", write " +
         fixed(ends.write, 1) + "), " + attention_summary(result.attention) +
         cache_summary(video.plan.cache, result.attention) + ", " + memory_summary(memory);
}

/// Shows the progress of steps, and counts the steps.
class CountedRun final : public ShownRun {
 public:
  using ShownRun::ShownRun;

  void step(const models::StepDone& step) override {
    ++steps;
    ShownRun::step(step);
  }

  int64_t steps = 0;  // steps that this run has computed for the current video
};

/// Makes the videos of a command line and reports them.
class Generation : private JobUser {
 public:
  Generation(const std::vector<Settings>& settings, GivenOutput output, World* world, RunReport& report);
  void run();

 private:
  bool several() const { return videos_.size() > 1; }
  void open();
  void meet();
  models::RunObserver& observer() override { return shown_; }
  void begin(const VideoTask& video) override;
  void warn(const VideoTask& video, const std::string& warning) override;
  std::string same_command() const;
  void kept_checkpoint(const VideoTask& video, int64_t step) override;
  void kept_latents(const VideoTask& video, const fs::path& latents) override;
  void written(const VideoTask& video, const Made& made) override;
  void show();
  bool is_verbose() const { return videos_.front().options.run.verbose; }

  const GivenOutput output_;
  World* const world_;
  RunReport& report_;
  std::vector<VideoTask> videos_;
  std::shared_ptr<models::Pipeline> pipeline_;
  std::string model_;  // absolute path of the model, found early because the model may be moved during the run
  Clock::time_point start_ = main_start();  // start of the current video; the first video starts with the program
  EndSeconds begun_;                        // seconds spent before the current video's stages
  std::vector<std::string> early_;
  std::set<std::string> told_;  // warnings already printed
  fs::path current_;            // output of the current video
  Progress progress_;
  CountedRun shown_{progress_};
  PresetLines presets_;
  const nlohmann::json head_;                              // fields that every report of this run begins with
  nlohmann::json video_, made_ = nlohmann::json::array();  // reports: of the current video; of all written videos
};

Generation::Generation(const std::vector<Settings>& settings, GivenOutput output, World* world, RunReport& report)
    : output_(std::move(output)),
      world_(world),
      report_(report),
      progress_(!settings.front().flag("quiet")),
      head_(report.content) {
  for (const Settings& each : settings) {
    VideoTask& video = videos_.emplace_back();
    video.settings = each;
    video.options = read_generate_options(each);
    check_outputs(each, video.options.run);
    if (world_ != nullptr) video.options.request.device = world_->device();
  }
}

void Generation::open() {
  const RunOptions& run = videos_.front().options.run;
  if (run.threads) models::set_threads(static_cast<int>(*run.threads));
  const auto before = Clock::now();
  models::start_device(videos_.front().options.request.device);
  if (world_ != nullptr) meet();
  begun_ = {.start = seconds_before_main(), .libraries = seconds_since(before)};
  pipeline_ = models::Pipeline::open(open_and_say(run), videos_.front().options.request);
  model_ = fs::canonical(run.model).string();
  LoadedFiles files;
  const int64_t ranks = world_ == nullptr ? 1 : world_->size();
  for (VideoTask& video : videos_) resolve_video(video, *pipeline_, files, ranks);
  say_terms(run, pipeline_->spec());
  begun_.open = seconds_since(start_) - begun_.libraries;
}

/// Connects the ranks and tells the other ranks which model to open. This comes before this rank opens it, so that all
/// ranks open it at the same time.
void Generation::meet() {
  const GenerateOptions& options = videos_.front().options;
  const int threads = options.run.threads ? static_cast<int>(*options.run.threads) : world_->threads();
  models::set_threads(threads);
  world_->connect();
  send_model(*world_, options, threads);
}

/// Updates the report, so that a failed run still reports what is known.
void Generation::show() {
  report_.content = head_;
  if (several()) report_.content["videos"] = made_;
  report_.content.update(video_);
}

void Generation::begin(const VideoTask& video) {
  video_ = {{"model", model_}, {"recipe", video.recipe}};
  if (!pipeline_->part_files().empty()) video_["files"] = models::shown(pipeline_->part_files());
  if (video.resumed_at_step > 0) video_["resumed_at_step"] = video.resumed_at_step;
  shown_.steps = 0;  // step() also counted the steps of encoding the text
  current_ = video.options.run.output;
  show();
}

/// Prints the warning, unless an earlier video has already caused the same warning.
void Generation::warn(const VideoTask& /*video*/, const std::string& warning) {
  progress_.clear();
  if (told_.insert(warning).second) print_warnings({warning});
}

void Generation::written(const VideoTask& video, const Made& made) {
  progress_.clear();
  const models::Outcome& result = made.result;
  EndSeconds ends = begun_;
  ends.write = seconds_since(made.write_start);
  ends.total = begun_.start + seconds_since(start_);
  report_.recovery.clear();
  video_.update(made_report(video, made, early_));
  add_output_report(video_, video.options.run, result.facts.shape, made.file);
  video_["device"] = pipeline_->device().str();
  video_["threads"] = at::get_num_threads();
  video_["seconds"] = seconds_report(result.seconds, ends);
  video_["attention"] = attention_report(result.attention, pipeline_->device());
  video_["memory"] = memory_report(pipeline_->device(), result.memory);
  if (result.memory_plan) video_["memory"]["plan"] = plan_report(*result.memory_plan);
  show();
  std::string line = last_line(video, result.facts.shape, made.file.sound, ends.total,
                               /*tells_seed=*/several() || video.options.random_seed);
  if (is_verbose()) line += "\n  " + details(video, result, ends, video_.at("memory"));
  made.latents.check();
  presets_.add(video, models::computed_steps(result.attention));
  if (!several()) {
    report_.last_line = line;
    return;
  }
  report_.last_line += (made_.empty() ? "" : "\n") + line;
  made_.push_back(std::exchange(video_, nlohmann::json::object()));
  show();
  start_ = Clock::now();
  begun_ = {};
}

/// Returns the advice to run the command again, with the output and the seed if the user did not give them. Without
/// these options, the next run might choose another name, and would draw another seed.
std::string Generation::same_command() const {
  std::string options;
  if (!output_.is_named) options += " -o " + shell_quoted(output_.path);
  if (output_.has_random_seed) options += " --seed " + std::to_string(videos_.front().options.request.seed);
  return "run the same command again" + (options.empty() ? "" : " with" + options);
}

void Generation::kept_checkpoint(const VideoTask& video, int64_t step) {
  report_.recovery =
      same_command() + ": it goes on from step " + std::to_string(step) + " in " + video.checkpoint.string();
}

void Generation::kept_latents(const VideoTask& video, const fs::path& latents) {
  report_.recovery = "the latents are kept; turn them into the video with: " +
                     decode_command(video.settings, video.options.run, latents);
}

void Generation::run() {
  open();
  std::vector<VideoTask*> videos;
  for (VideoTask& video : videos_) videos.push_back(&video);
  begin(videos_.front());
  early_ = early_warnings(videos);
  if (world_ != nullptr && !pipeline_->device().is_cpu())
    if (std::string warning = link_warning(find_gpu_links(), world_->ranks_here()); !warning.empty())
      early_.push_back(std::move(warning));
  for (const std::string& warning : early_) warn(videos_.front(), warning);
  Job job(*this, interrupted, {.world = [this] { return world_; }});
  try {
    job.load(videos, *pipeline_);
    job.run(videos, *pipeline_);
  } catch (const models::Cancelled&) {
    if (shown_.steps > 0 || !report_.recovery.empty()) throw;
    const std::string of = several() ? " of " + current_.string() : "";
    throw Error(ErrorKind::cancelled, "no step" + of + " was done, so there is nothing to keep", same_command());
  }
  if (world_ != nullptr) world_->finish();
  if (!is_verbose()) return;
  for (const std::string& line : presets_.lines()) report_.last_line += "\n" + line;
}

/// Makes one video per entry of `settings`. The report describes a single video at its top level, and several videos as
/// a list under the key `videos`. `world` holds the ranks that make the videos together; this process is rank 0. It is
/// null if this process works alone.
void generate(const std::vector<Settings>& settings, const GivenOutput& output, World* world, RunReport& report) {
  try {
    Generation(settings, output, world, report).run();
  } catch (...) {
    if (world != nullptr) world->end(models::as_error(std::current_exception()));
    throw;
  }
}

/// Runs a rank that a launcher started. Only rank 0 reports errors of the options.
void follow_rank_0(CommandLine& line) {
  std::exception_ptr failure;
  try {
    line.collect();
    if (line.settings.flag("dry_run")) return;  // rank 0 shows the dry run alone
  } catch (const Error&) {
    failure = std::current_exception();
  }
  const std::unique_ptr<World> world = World::find(line.settings, line.given());
  if (!world) {
    std::cerr << "error: the file of --config says gpus 1, but a launcher has started several ranks\n  remedy: give "
                 "--gpus 1\n";
    throw run_failure("rank 0 makes the video without this rank", "give --gpus 1");
  }
  const int code = follow(*world, failure);
  for (const ErrorKind kind : {ErrorKind::bad_input, ErrorKind::failed, ErrorKind::cancelled})
    if (code == models::exit_code(kind)) throw Error(kind, "the ranks made no video", "read the error of rank 0");
}

void run_generate(CommandLine& line) {
  if (line.is_silent) return follow_rank_0(line);
  line.collect();
  const bool output_is_named = line.settings.has("output");
  const bool is_dry = line.settings.flag("dry_run");
  const Reservations reservations = choose_output(line.settings, video_count(line.settings), /*reserves=*/!is_dry);
  const std::vector<Settings> videos = settings_of_videos(line.settings);
  if (is_dry) {
    check_distinct(videos, line.config);
    line.start("generate");
    return show_generation(videos, line.report);
  }
  check_files(videos, line.config, {});
  line.start("generate");
  const std::unique_ptr<World> world = World::find(line.settings, line.given());
  const GivenOutput output{.path = line.settings.text("output", kDefaultOutput),
                           .is_named = output_is_named,
                           .has_random_seed = is_random_seed(line.settings.text("seed", ""))};
  generate(videos, output, world.get(), line.report);
}

}  // namespace

void add_generate(CLI::App& program, CommandLine& line) {
  CLI::App* command =
      program.add_subcommand("generate", "Makes a video from a prompt, and from an image if the model takes one");
  command->footer("sparsereel generate -p \"a red circle moving to the right on a blue background\" -o circle.mp4");
  add_shared_options(*command, line, Command::generate);
  command->callback([&line] { run_generate(line); });
}

}  // namespace sparsereel::app
