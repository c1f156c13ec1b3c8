// `sparsereel bench quality`: plans the run, makes and compares the videos, and fills the report. app/lab/bench/ holds
// these parts.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "app/commands/bench.h"
#include "app/counted.h"
#include "app/jobs/used_files.h"
#include "app/jobs/write.h"
#include "app/lab/bench/quality_plan.h"
#include "app/lab/bench/quality_runs.h"
#include "app/lab/measure/run_progress.h"
#include "app/options/tiny_model.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/layers/cpu_threads.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;
using bench::QualityPlan;

/// Returns the classifier if there is one, and if a prompt describes a trait that it can recognize. Otherwise returns
/// nothing, or throws Error if the user gave --judge (`asked`) and no prompt describes a trait.
std::optional<bench::Classifier> find_classifier(const QualityPlan& plan, bool asked) {
  if (plan.options.judge.empty()) return {};
  const bool tells = std::any_of(plan.prompts.begin(), plan.prompts.end(), [](const std::string& prompt) {
    const bench::Traits traits = bench::traits_of(prompt);
    return std::any_of(traits.begin(), traits.end(), [](int trait) { return trait >= 0; });
  });
  if (tells) return bench::Classifier(plan.options.judge);
  if (asked)
    throw bad_input("--judge " + plan.options.judge + ": no prompt names a shape, color, background or motion",
                    "leave out --judge, or give prompts like 'a red circle moving to the right on a blue background'");
  return {};
}

/// Checks the folder of --pictures, which gets one picture per video.
void check_pictures(const fs::path& folder) {
  if (folder.empty()) return;
  if (fs::exists(folder) && !fs::is_directory(folder))
    throw bad_input("--pictures " + folder.string() + ": this is not a folder", "name a folder, which may be new");
  const fs::path parent = fs::absolute(folder).parent_path();
  if (!fs::is_directory(parent))
    throw bad_input("--pictures " + folder.string() + ": there is no folder " + parent.string(), "make it first");
  check_contact_sheet(parent / "full.png");
}

std::string file_name(size_t index, std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  const size_t first = name.find("--");
  for (size_t at = first; at != std::string::npos; at = name.find("--")) name.erase(at, 1);
  return (index < 10 ? "0" : "") + std::to_string(index) + "-" + name + ".png";
}

void write_pictures(const fs::path& folder, const std::vector<bench::Picture>& pictures) {
  if (folder.empty()) return;
  fs::create_directory(folder);
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto& [name, frames] = pictures[i];
    write_contact_sheet(folder / file_name(i, name), frames_view(frames), name, frames.size(0));
  }
}

nlohmann::json full_report(const bench::QualityRuns& runs) {
  const Row row = runs.full();
  nlohmann::json full = {{"in_turns", !runs.reduces_weights()}};
  for (const char* key : {"step_ms", "denoise_seconds", "judge", "judge_counts"})
    if (row.contains(key)) full[key] = row[key];
  return full;
}

/// Returns a line about the baseline, such as "full attention: 612 ms a step, 12.24 s of denoising, the classifier is
/// right for 20 of 20 prompts".
std::string full_summary(const nlohmann::json& full, bool timed_here) {
  std::string text;
  const bool in_turns = full.at("in_turns");
  if (const auto milliseconds = number_of(full, "step_ms")) {
    text =
        number_text(*milliseconds, 4) + " ms a step, " + number_text(full.at("denoise_seconds"), 4) + " s of denoising";
    if (!in_turns && timed_here)
      text +=
          " (timed after the rows of other weights, not in turns with them, so a drift of the clock affects their 'x "
          "full')";
  }
  if (full.contains("judge_counts")) {
    const nlohmann::json& counts = full.at("judge_counts");
    text += (text.empty() ? "" : ", ") + std::string("the classifier is right for ") + counts.at("right").dump() +
            " of " + counted(counts.at("prompts").get<int64_t>(), "prompt");
  }
  const std::string weights = in_turns ? "" : " without 8-bit weights";
  return text.empty() ? text : "full attention" + weights + ": " + text + "\n";
}

/// Returns lines that say where the times come from, and with which row the others are compared prompt by prompt.
std::string sources_of_figures(const QualityPlan& plan, const Rows& rows) {
  std::string text;
  for (const std::string& summary : plan.times ? plan.times->summaries : std::vector<std::string>{})
    text += "times: " + summary + "\n";
  if (plan.against)
    text += "paired: PSNR minus that of " + text_of(rows[*plan.against], "name") +
            " for the same prompt, mean ± standard error\n";
  return text;
}

void add_weights_warning(const bench::Lists& lists, const bench::Pipelines& pipelines, QualityPlan& plan) {
  if (!bench::is_given(lists, "weights")) return;
  for (const auto& [weights, pipeline] : pipelines.by_weights)
    if (const std::string why = pipeline->why_weights_have_no_effect(); !why.empty())
      plan.warnings.push_back("--weights " + weights + " has no effect " + why);
}

/// Returns the curves for --plot. Throws Error if no row has both a time and a PSNR.
CurvesData curves_to_draw(const std::string& plot, const Rows& rows, const RunReport& report) {
  const auto is_drawn = [](const Row& row) { return number_of(row, "denoise_seconds") && number_of(row, "psnr"); };
  if (std::ranges::none_of(rows, is_drawn)) {
    const std::string note = text_of(rows.front(), "note");
    throw run_failure(
        "--plot " + plot + " is not drawn: no row has both a time and a PSNR" + (note.empty() ? "" : " (" + note + ")"),
        "the table is complete; give more --timed-steps, or give --times with a report of 'bench pipeline'");
  }
  return curves_of(report.content, "this run");
}

Rows measure(bench::QualityRuns& runs, RunReport& report) {
  using bench::QualityRuns;
  Rows rows;
  for (const auto stage :
       {&QualityRuns::encode_prompts, &QualityRuns::denoise, &QualityRuns::time_steps, &QualityRuns::compare}) {
    (runs.*stage)();
    rows = runs.rows();
    report.content["rows"] = rows;
    report.content["full"] = full_report(runs);
  }
  if (std::ranges::all_of(rows, [](const Row& row) { return row["prompts"].empty(); }))
    throw run_failure(
        "no row could be measured; the first row failed because of this: " + text_of(rows.front(), "note"),
        "give other values to the options that differ between rows");
  return rows;
}

/// Measures quality. The key `full` of the report gets the results of full attention. Also draws a chart, and writes
/// pictures of the first prompt's videos, if requested.
void bench_quality(const Settings& settings, const bench::QualityOptions& options, RunReport& report) {
  QualityPlan plan = bench::make_quality_plan(settings, options);
  if (!plan.options.plot.empty()) check_chart("--plot", plan.options.plot);
  check_pictures(plan.options.pictures);
  TableOutput output(options.table);
  const std::optional<bench::Classifier> judge = find_classifier(plan, !options.judge.empty());
  if (plan.run.threads) models::set_threads(static_cast<int>(*plan.run.threads));
  const models::Checkpoint folder = open_and_say(plan.run);
  const bench::Pipelines pipelines = bench::open_pipelines(plan, folder);
  say_terms(plan.run, pipelines.reference->spec());
  // If all rows use one kind of weights, use the pipeline with these weights, so that the report describes each row.
  const auto pipeline = pipelines.by_weights.size() == 1 ? pipelines.by_weights.begin()->second : pipelines.reference;
  if (std::ranges::any_of(plan.grid.combinations, &bench::Combination::sparse)) check_sparse_runs(*pipeline);
  pipeline->check_weights(plan.request.has_images());
  add_weights_warning(options.lists, pipelines, plan);
  if (std::string unknown = unknown_words_warning(plan.run.model, plan.prompts); !unknown.empty())
    plan.warnings.push_back(std::move(unknown));
  begin_report(settings, plan, folder, *pipeline, report);
  if (const std::string untimed = bench::check_times(plan); !untimed.empty()) {
    print_warnings({untimed});
    report.content["warnings"].push_back(untimed);
  }
  report.content["settings"].update({{"prompts", plan.prompts.size()},
                                     {"dense_layers", plan.video.attention_policy.dense_layers},
                                     {"judge", judge ? nlohmann::json(plan.options.judge) : nlohmann::json()},
                                     {"times", plan.times ? nlohmann::json(plan.times->summaries) : nlohmann::json()}});

  const c10::InferenceMode guard;
  const c10::OptionalDeviceGuard device(pipeline->device().is_cpu() ? std::nullopt : std::optional(pipeline->device()));
  RunProgress progress(!plan.run.quiet, report, remedy_of_interruption(report, "stages"));
  bench::QualityRuns runs(plan, pipelines, progress, judge ? &*judge : nullptr);
  const Rows rows = measure(runs, report);
  bench::settle_tokens(report.content["settings"], pipeline->spec(), plan.video, runs.text_tokens());
  progress.clear();
  output.deliver(bench::run_summary(report.content) + ", means over " +
                     counted(static_cast<int64_t>(plan.prompts.size()), "prompt") + "\n" +
                     sources_of_figures(plan, rows) + full_summary(report.content["full"], !plan.times) + "\n" +
                     markdown(bench::quality_columns(), rows, output.aligned()) +
                     explained(bench::quality_columns(), rows),
                 bench::quality_columns(), rows, report);
  if (!plan.options.plot.empty()) {
    write_curves(plan.options.plot, {curves_to_draw(plan.options.plot, rows, report)});
    std::cerr << "PSNR against seconds: " << plan.options.plot << "\n";
  }
  write_pictures(plan.options.pictures, runs.pictures());
}

/// Returns the files of options that only this command has.
std::vector<NamedFile> files_of_quality(const bench::QualityOptions& options) {
  std::vector<NamedFile> files = {{"--output", options.table.output, true},
                                  {"--plot", options.plot, true},
                                  {"--pictures", options.pictures, true},
                                  {"the file of prompts", options.prompts},
                                  {"--judge", options.judge}};
  for (const std::string& profile : options.profiles()) files.push_back({"--profile", profile});
  for (const std::string& report : split(options.times, ',')) files.push_back({"--times", report});
  return files;
}

}  // namespace

void add_bench_quality(CLI::App& above, CommandLine& line) {
  CLI::App* command =
      above.add_subcommand("quality", "Measures what settings change in the videos, and how fast they are");
  const auto options = std::make_shared<bench::QualityOptions>();
  bench::add_options(*command, *options);
  add_shared_options(*command, line, Command::bench_quality);
  command->footer("sparsereel bench quality prompts.txt --limit 4 --topk 0.5,0.3");
  command->callback([&line, options] {
    line.collect(PresetUse::whole_where_named);
    line.check_files(Command::bench_quality, files_of_quality(*options));
    line.settings.given_as_lists(bench::selections_given(options->lists));
    line.start("bench quality");
    bench_quality(line.settings, *options, line.report);
  });
}

}  // namespace sparsereel::app
