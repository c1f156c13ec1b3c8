// `sparsereel batch`: plans the rows, skips finished ones and renders the rest model by model.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <set>

#include "app/called_program.h"
#include "app/clock.h"
#include "app/commands/batch_options.h"
#include "app/commands/commands.h"
#include "app/counted.h"
#include "app/jobs/batch/dry_run.h"
#include "app/jobs/batch/gpu_processes.h"
#include "app/jobs/batch/gpu_work.h"
#include "app/jobs/batch/render.h"
#include "app/jobs/batch/status.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/last_line.h"
#include "app/jobs/outputs.h"
#include "app/jobs/used_files.h"
#include "app/options/nearest.h"
#include "app/options/options.h"
#include "app/options/text_file.h"
#include "app/ranks/world.h"
#include "app/terminal.h"
#include "hilbert/error.h"
#include "models/files/atomic_file.h"
#include "models/layers/cpu_threads.h"
#include "models/request/run.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

using namespace sets;  // NOLINT(google-build-using-namespace): this file is the command of that namespace

void check_options(const SetSettings& set, const BatchOptions& options) {
  if (options.set.empty()) throw bad_input("a prompt set is missing", "name a .txt, .jsonl, .csv or .yaml file");
  if (options.folder.empty()) throw bad_input("no output folder is given", "name the folder of the videos with -o DIR");
  require_choice("--format " + options.format, options.format,
                 {"mp4", "mov", "mkv", "webm", "gif", "y4m", "safetensors"}, "see 'sparsereel batch --help'");
  for (const OptionSpec& option : option_table()) {
    if (option.scope == Scope::one_video && set.merged.has(option.key()))
      throw bad_option(option.key(), *set.merged.text(option.key()) + " belongs to one video, not to a set",
                       "give it in a row of the set");
  }
  if (is_random_seed(set.merged.text("seed", "")))
    throw bad_option("seed",
                     *set.merged.text("seed") + " is impossible here, because a resumed set needs the same seeds",
                     "give a number; row i adds i to it");
  if (const auto threads = set.merged.whole("threads")) models::check_threads(*threads);
  std::vector<NamedFile> files = files_of(Command::batch, set.merged);
  files.push_back({"--config", set.config_file});
  if (!is_standard_input(options.set)) files.push_back({"the prompt set", options.set});
  check_files(files, set.merged);
}

/// Reads the prompt set. If the format of standard input was guessed wrongly, the error names --input-format.
std::vector<PromptRow> read_rows(const BatchOptions& options) {
  const std::optional<SetFormat> format = parse_set_format(options.input_format);
  try {
    return read_prompt_set(options.set, format);
  } catch (const Error& error) {
    if (format || !is_standard_input(options.set)) throw;
    throw bad_input(error.what(), error.remedy() + ", or name its format with --input-format");
  }
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_directory(folder))
    throw bad_input("cannot make the folder " + folder.string() + (error ? ": " + error.message() : ""),
                    "choose another with -o");
}

/// Returns the pipeline of these rows. If their model or device cannot be used, reports the rows as failed and returns
/// null.
std::shared_ptr<models::Pipeline> open_for(const std::vector<VideoTask*>& rows, Renderer& renderer) {
  if (std::all_of(rows.begin(), rows.end(), [](const VideoTask* row) { return row->failure.has_value(); })) {
    for (const VideoTask* row : rows) renderer.failed(*row);
    return nullptr;
  }
  std::shared_ptr<models::Pipeline> pipeline;
  renderer.prepare(rows, [&] {
    pipeline = models::Pipeline::open(open_and_say(rows.front()->options.run), rows.front()->options.request);
    say_terms(rows.front()->options.run, pipeline->spec());
  });
  return pipeline;
}

/// The results of earlier runs, read from their manifests.
struct History {
  const std::vector<ManifestEntry>& entries;
  FinishedVideos finished;
  Identities made = {};  // identities of finished rows, by the paths of their videos
};

/// Returns the rows that are still to be made: no earlier run has finished them under the names of their outputs.
/// `ranks` is the number of ranks that make a video together.
std::vector<VideoTask*> pending(const std::vector<VideoTask*>& rows, const models::Pipeline& pipeline, History& history,
                                Renderer& renderer, int64_t ranks) {
  std::vector<VideoTask*> left;
  LoadedFiles files;
  for (VideoTask* row : rows) {
    resolve_row(*row, pipeline, files, ranks);
    if (row->failure) {
      renderer.failed(*row);
    } else if (const ManifestEntry* finished = history.finished.find(*row)) {
      renderer.skip(*row, *finished, history.entries);
      history.made[row->options.run.output] = row->identity;
    } else {
      left.push_back(row);
      continue;
    }
    row->pictures.reset();
  }
  return left;
}

/// Throws Error if no video can be written into the folder, so that all rows fail with a single error.
void check_takes_files(const std::filesystem::path& folder, const std::filesystem::path& manifest) {
  try {
    const models::AtomicFile probe(manifest);
  } catch (const Error& error) {
    throw Error(error.kind(), "no video can be written into " + folder.string() + ": " + error.what(), error.remedy());
  }
}

/// Removes the rows whose videos existed under other names and were `moved`. Also removes the rows whose outputs cannot
/// be written, and reports these rows as failed.
void keep_writable(std::vector<VideoTask*>& rows, const std::vector<MovedVideo>& moved, Renderer& renderer) {
  std::set<const VideoTask*> kept;
  for (const MovedVideo& each : moved) kept.insert(each.row);
  std::erase_if(rows, [&](VideoTask* row) {
    if (!kept.contains(row)) {
      check_row_outputs(*row);
      if (!row->failure) return false;
      renderer.failed(*row);
    }
    row->pictures.reset();
    return true;
  });
}

void fill_report(RunReport& report, const Tally& tally, const Share& share, double seconds) {
  nlohmann::json failures = nlohmann::json::array();
  for (const VideoTask* row : tally.failed)
    failures.push_back({{"row", row->index},
                        {"place", row->place},
                        {"cause", row->failure->what()},
                        {"remedy", as_called(row->failure->remedy())}});
  report.content["set"] = {{"rows", tally.rows},   {"share", tally.share},          {"rank", share.rank},
                           {"shares", share.size}, {"rendered", tally.rendered},    {"skipped", tally.skipped},
                           {"moved", tally.moved}, {"failed", tally.failed.size()}, {"failures", failures}};
  if (const auto lines = tally.presets.lines(); !lines.empty()) report.content["preset"] = lines;
  report.content["seconds"] = tally.seconds;
  report.content["seconds"]["total"] = seconds;
  report.content["warnings"] = tally.told;
  for (const std::string& warning : tally.warnings) report.content["warnings"].push_back(warning);
}

std::string summary(const Tally& tally, const BatchOptions& options, const std::vector<std::string>& left_over,
                    double seconds) {
  std::string text = options.folder.string() + ": " + counted(tally.share, "row");
  if (tally.share < tally.rows) text += " of " + std::to_string(tally.rows);
  text += ", " + std::to_string(tally.rendered) + " rendered";
  if (tally.skipped > 0) text += ", " + std::to_string(tally.skipped) + " finished before";
  if (tally.moved > 0) text += " (" + std::to_string(tally.moved) + " renamed)";
  if (!tally.failed.empty()) text += ", " + std::to_string(tally.failed.size()) + " failed";
  text += ", in " + duration_text(seconds);
  const auto render = tally.seconds.find("render");
  if (tally.rendered > 0 && render != tally.seconds.end())
    text += " (" + duration_text(render->second / static_cast<double>(tally.rendered)) + " a video)";
  if (const std::string preset = tally.presets.common_name(); !preset.empty()) text += ", " + preset;
  constexpr size_t kMostNames = 5;
  for (size_t i = 0; i < std::min(left_over.size(), kMostNames); ++i)
    text += (i == 0 ? ", files that belong to no row any more: " : ", ") + left_over[i];
  if (left_over.size() > kMostNames) text += " and " + std::to_string(left_over.size() - kMostNames) + " more";
  return text;
}

void report_failures(const Tally& tally, const std::string& summary) {
  print_warnings(tally.warnings);
  if (tally.failed.empty()) return;
  for (const VideoTask* row : tally.failed)
    std::cerr << one_line(row->failure->what()) << "\n  remedy: " << indented_lines(as_called(row->failure->remedy()))
              << "\n";
  throw run_failure(counted(static_cast<int64_t>(tally.failed.size()), "row") + " failed: " + summary,
                    "correct these rows and run the same command again: finished videos are kept");
}

/// Returns each row `count` times, with numbers added to the names of the files that it writes.
std::vector<PromptRow> repeated(const std::vector<PromptRow>& rows, int64_t count) {
  std::vector<PromptRow> all;
  for (const PromptRow& row : rows) {
    for (int64_t copy = 0; copy < count; ++copy) {
      all.push_back(row);
      all.back().copy = copy;
      for (auto& [key, value] : all.back().values)
        if (find_option(key)->scope == Scope::one_video) value = numbered(value, copy, count).string();
    }
  }
  return all;
}

/// Rows that are left to render with the same pipeline.
struct Group {
  std::shared_ptr<models::Pipeline> pipeline;
  std::vector<VideoTask*> rows;
};

/// Divides the GPUs of --gpus among the videos that are made at the same time. Returns an empty list if this process
/// renders the set alone.
std::vector<GpusOfAVideo> find_gpus(const Settings& settings, const BatchOptions& options, const Share& share) {
  const int64_t count = settings.whole("gpus").value_or(1);
  if (count == 1 && options.gpus_per_video == 1) return {};
  if (share.size > 1)
    throw bad_option("gpus",
                     std::to_string(count) + ": " + share.source +
                         " gives this process a share of the set, which it makes on one GPU",
                     "leave out --gpus");
  return gpus_of_videos(settings, options.gpus_per_video);
}

void render_on_gpus(const std::vector<GpusOfAVideo>& gpus, const BatchOptions& options, std::vector<Group>& groups,
                    ManifestWriter& manifest, Progress& progress, Tally& tally) {
  RowGroups rows;
  for (Group& group : groups) {
    rows.push_back(group.rows);
    group.pipeline.reset();  // frees its memory for the processes of the GPUs
  }
  GpuProcesses(gpus, options).render(rows, manifest, progress, tally);
}

void begin_batch_report(const SetSettings& set, RunReport& report) {
  start_report(set.merged.text("report", ""), set.merged.flag("json"), "batch", report);
}

/// Runs `batch --status`: adds up the manifests of a folder, and renders nothing.
void sum_manifests(const SetSettings& set, const BatchOptions& options, RunReport& report) {
  if (!options.set.empty() || !options.folder.empty() || !options.share.empty() || !options.input_format.empty())
    throw bad_input("--status " + options.status.string() +
                        " makes no video, so FILE, --input-format, -o and --share have no effect",
                    "leave them out, or leave out --status");
  std::vector<NamedFile> files = {{"--config", set.config_file}, {"--report", set.merged.text("report", "")}};
  for (const std::filesystem::path& manifest : manifests_in(options.status))
    files.push_back({"a manifest to sum", manifest});
  check_distinct(files);
  begin_batch_report(set, report);
  show_status(options.status, report);
}

/// The rows of this process, planned before any model is opened.
struct PlannedSet {
  Share share;
  std::vector<GpusOfAVideo> gpus;  // empty if this process renders the rows itself
  int64_t row_count = 0;           // rows of the whole set, counting repetitions
  SetPlan plan;
};

PlannedSet plan_set(const SetSettings& set, const BatchOptions& options) {
  PlannedSet planned;
  planned.share = find_share(options.share, process_environment);
  planned.gpus = find_gpus(set.merged, options, planned.share);
  if (!planned.gpus.empty() && is_standard_input(options.set)) keep_standard_input();
  const std::vector<PromptRow> rows = repeated(read_rows(options), video_count(set.merged));
  planned.row_count = static_cast<int64_t>(rows.size());
  planned.plan = plan_rows(rows, set, options, planned.share);
  return planned;
}

/// Turns a planned set into videos. Holds the manifest, the results of earlier runs, and the results of the rows.
class SetRun {
 public:
  /// Opens the manifest of this share, and removes temporary files that killed runs left behind for its rows.
  SetRun(const SetSettings& set, const BatchOptions& options, PlannedSet& planned)
      : set_(set),
        options_(options),
        planned_(planned),
        manifest_(options.folder, planned.share.rank),
        entries_(read_earlier_entries()),
        progress_(!set.merged.flag("quiet")),
        renderer_(manifest_, progress_, tally_, interrupted),
        history_{.entries = entries_, .finished = {entries_, options.folder}} {
    tally_.rows = planned.row_count;
    tally_.share = static_cast<int64_t>(planned.plan.rows.size());
  }

  /// Opens the models, and skips the rows that are finished. Returns the rows that are left to render, by pipeline.
  std::vector<Group> skip_finished();
  /// Renders the rows. A row that fails does not stop the others.
  void render(std::vector<Group>& groups);
  /// Fills the report. Throws Error (exit code 1) if rows failed.
  void report_to(RunReport& report, double seconds) const;

 private:
  std::vector<ManifestEntry> read_earlier_entries() {
    remove_leftovers(planned_.plan.rows);  // no other process makes these rows, because the manifest is locked
    return read_manifests(options_.folder, tally_.warnings);
  }
  std::vector<MovedVideo> move_finished(const std::vector<VideoTask*>& rows);

  const SetSettings& set_;
  const BatchOptions& options_;
  PlannedSet& planned_;
  Tally tally_;
  ManifestWriter manifest_;
  const std::vector<ManifestEntry> entries_;
  Progress progress_;
  Renderer renderer_;
  History history_;
};

std::vector<VideoTask*> rows_in(const std::vector<Group>& groups) {
  std::vector<VideoTask*> rows;
  for (const Group& group : groups) rows.insert(rows.end(), group.rows.begin(), group.rows.end());
  return rows;
}

std::vector<Group> SetRun::skip_finished() {
  std::vector<Group> groups;
  for (const std::vector<VideoTask*>& rows : groups_of(planned_.plan.rows)) {
    const auto pipeline = open_for(rows, renderer_);
    if (!pipeline) continue;
    groups.push_back({pipeline, pending(rows, *pipeline, history_, renderer_, options_.gpus_per_video)});
  }
  const std::vector<VideoTask*> left = rows_in(groups);
  if (!left.empty()) check_takes_files(options_.folder, manifest_path(options_.folder, planned_.share.rank));
  const std::vector<MovedVideo> moved = move_finished(left);
  remove_checkpoints(history_.made);  // left by runs that were killed right after they wrote the manifest's line
  for (Group& group : groups) keep_writable(group.rows, moved, renderer_);
  progress_.clear();
  return groups;
}

/// Finds finished videos of these rows that exist under other names, and renames them to the rows' names.
std::vector<MovedVideo> SetRun::move_finished(const std::vector<VideoTask*>& rows) {
  // If several processes share the set, a process does not know whether a row of another process needs the same video.
  if (planned_.share.size > 1) return {};
  std::vector<MovedVideo> moved = history_.finished.find_moved(rows);
  for (const MovedVideo& each : moved) {
    renderer_.move(each);
    history_.made[options_.folder / each.finished->output] = each.row->identity;
  }
  return moved;
}

void SetRun::render(std::vector<Group>& groups) {
  const std::vector<VideoTask*> left = rows_in(groups);
  tally_.told = early_warnings(left);
  print_warnings(tally_.told);
  try {
    if (!planned_.gpus.empty() && !left.empty())
      render_on_gpus(planned_.gpus, options_, groups, manifest_, progress_, tally_);
    else
      for (Group& group : groups) {
        renderer_.render(group.rows, *group.pipeline);
        group.pipeline.reset();  // free its weights to make room for the next model
      }
  } catch (const models::Cancelled&) {
    progress_.clear();
    print_warnings(tally_.warnings);
    throw;
  }
  progress_.clear();
}

void SetRun::report_to(RunReport& report, double seconds) const {
  report.recovery.clear();
  fill_report(report, tally_, planned_.share, seconds);
  const std::vector<std::string> left_over = history_.finished.left_over(planned_.plan.names);
  report.content["set"]["left_over"] = left_over;
  report.last_line = summary(tally_, options_, left_over, seconds);
  report_failures(tally_, report.last_line);
  if (!set_.merged.flag("verbose")) return;
  for (const std::string& line : tally_.presets.lines()) report.last_line += "\n" + line;
}

void batch(const SetSettings& set, const BatchOptions& options, RunReport& report) {
  if (!options.status.empty()) return sum_manifests(set, options, report);
  const auto start = std::chrono::steady_clock::now();
  check_options(set, options);
  if (const auto gpu = find_started_rank(process_environment))
    return render_on_this_gpu(set, options, repeated(read_rows(options), video_count(set.merged)), *gpu);
  PlannedSet planned = plan_set(set, options);
  begin_batch_report(set, report);  // after planning, which refuses a report that is also a file of the set
  if (set.merged.flag("dry_run")) return show_set(planned.plan, options, planned.share, planned.row_count, report);
  make_folder(options.folder);
  SetRun run(set, options, planned);
  if (const auto threads = set.merged.whole("threads")) models::set_threads(static_cast<int>(*threads));
  report.recovery = "run the same command again: it goes on where this run stopped";
  std::vector<Group> left = run.skip_finished();
  run.render(left);
  run.report_to(report, seconds_since(start));
}

}  // namespace

void add_batch(CLI::App& program, CommandLine& line) {
  CLI::App* command = program.add_subcommand("batch", "Makes a folder of videos from a file of prompts");
  command->footer("sparsereel batch prompts.txt -o videos");
  const auto options = std::make_shared<BatchOptions>();
  add_batch_options(*command, *options);
  add_shared_options(*command, line, Command::batch);
  command->callback([&line, options] {
    line.collect();
    batch({.command_line = line.values, .config_file = line.config, .merged = line.settings}, *options, line.report);
  });
}

}  // namespace sparsereel::app
