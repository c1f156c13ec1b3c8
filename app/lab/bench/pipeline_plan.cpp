// Turns the options of `bench pipeline` into a plan.
#include "app/lab/bench/pipeline_plan.h"

#include <algorithm>

#include "app/lab/bench/list_options.h"
#include "app/options/nearest.h"
#include "app/options/option_group.h"
#include "models/request/sampling.h"

namespace sparsereel::app::bench {
namespace {

constexpr int64_t kDefaultSteps = 4;  // enough to measure time, but too few for a good video
constexpr const char* kPrompt = "a red circle moving to the right on a blue background";

Grid contenders(const Settings& settings, const PipelineOptions& options, const GenerateOptions& given) {
  Compared compared{.modes = parse_modes(options.modes, {"full", "quantized", "sparse"})};
  if (given.profile) compared.profiles = {policy_of(*given.profile)};
  Grid grid = expand(settings, options.lists, compared);
  for (Combination& each : grid.combinations) {  // all combinations run in one pipeline, so they have the same weights
    if (each.weights != given.request.weights)
      grid.warnings.push_back("--profile " + each.profile + ": its weights " + each.weights +
                              " have no effect, because one model serves all rows: give --weights " + each.weights);
    each.weights = given.request.weights;
  }
  return grid;
}

/// Warns that options of block selection have no effect if no contender drops blocks, and that options of means have
/// none if no contender uses means.
void warn_of_selection(const Settings& settings, std::vector<NoEffectCause> no_effect, PipelinePlan& plan) {
  const std::vector<Combination>& rows = plan.grid.combinations;
  PipelineOptions& options = plan.options;
  plan.warnings = plan.grid.warnings;
  if (std::ranges::none_of(rows, &Combination::sparse)) {
    const std::string why = "with --modes " + options.modes;
    if (!options.heat_map.empty()) plan.warnings.push_back("--heat-map has no effect " + why);
    if (is_given(options.lists, "token_order") && parse_orders(*options.lists.at("token_order")).size() > 1)
      plan.warnings.push_back("--token-order: all orders but the first have no effect " + why);
    options.heat_map.clear();
    plan.profiles.clear();
    no_effect.push_back({NoEffect::every_block, "modes", why});
    no_effect.push_back({NoEffect::exact, "modes", why});
  } else if (std::ranges::none_of(rows, &Combination::has_untuned_means)) {
    no_effect.push_back({NoEffect::no_means, "dropped", "without means for dropped blocks"});
  }
  for (std::string& warning : no_effect_warnings(settings, no_effect)) plan.warnings.push_back(std::move(warning));
}

}  // namespace

PipelinePlan make_pipeline_plan(const Settings& settings, const PipelineOptions& options) {
  check_range("--warmup", options.warmup, 0, 1000);
  check_range("--repetitions", options.repetitions, 1, 1000);
  check_range("--steps", options.steps, 1, 1'000'000);
  const GenerateOptions given = read_generate_options(settings, /*prompt_needed=*/false);
  PipelinePlan plan{make_video_plan(given, options.lists), options};
  if (given.profile) plan.profiles = {*given.profile};
  for (models::TunedProfile& profile : plan.profiles)  // its row uses the profile's own policies of heads
    profile.heads = models::heads_of(*profile.content);
  if (!settings.has("prompt") && !settings.has("prompt_file")) plan.request.prompt = kPrompt;
  plan.decode = !options.no_decode;
  plan.grid = contenders(settings, options, given);
  warn_of_selection(settings, given.no_effect, plan);
  return plan;
}

void choose_steps(const models::ModelSpec& spec, PipelinePlan& plan) {
  models::Request& request = plan.request;
  plan.video_steps = models::steps_of(request, spec);
  const bool cached = std::ranges::any_of(plan.grid.combinations, [](const auto& each) { return each.cache.on(); });
  const int64_t steps = plan.options.steps.value_or(cached ? plan.video_steps : kDefaultSteps);
  if (steps != plan.video_steps) request.sigmas.clear();
  request.num_inference_steps = request.sigmas.empty() ? models::asked_steps_of(steps, request, spec) : steps;
}

namespace {

constexpr const char* kExample = "sparsereel bench pipeline -m assets/tiny ";  // begins the examples

/// Adds the options that say which rows the table has.
void add_rows(const OptionGroup& group, PipelineOptions& options) {
  const std::string example = kExample;
  group.add("--modes", options.modes,
            {.help = "comma list of methods (default full,quantized,sparse)",
             .manual = R"(Chooses the methods of attention to measure: a comma list of full, quantized and sparse. All
                 methods make the same video from the same noise.)",
             .example = example + "--modes full,sparse"},
            "MODES");
  add_selection_lists(group, options.lists, "bench pipeline -m assets/tiny", "as generate");
  add_list(group, options.lists, "token_order",
           {.help = "token orders of sparse attention (default hilbert)",
            .example = example + "--modes sparse --token-order hilbert,native"});
  add_list(
      group, options.lists, "cache",
      {.help = "caches, as generate takes them (default 0: none)",
       .manual = R"(Takes a comma list of caches, and measures a row for each. With a cache, a run has all steps of a
           video, because a few steps do not show how many are reused.)",
       .example = example + "--modes full --cache 0,steps:10"});
  add_list(group, options.lists, "gpus",
           {.help = "how many GPUs make a video together (default 1)",
            .manual = R"(Takes a comma list of numbers of GPUs, and measures how long each number of GPUs needs to
                make a video together. The table shows the gain over the first number of the list.)",
            .example = "sparsereel bench pipeline -m MODEL --gpus 1,2,4"});
}

/// Adds the options that leave out measurements, or add rows that are not measured.
void add_extras(CLI::App& command, const OptionGroup& group, PipelineOptions& options) {
  const std::string example = kExample;
  group.flag(
      "--no-decode", options.no_decode,
      {.help = "leave decoding out",
       .manual = R"(Does not decode. The table then lacks the time of decoding and the fidelity of the frames. Use it
           to measure steps only, or if memory is too small to decode.)",
       .example = example + "--no-decode",
       .in_help = InHelp::all});
  group.add("--dry-run", options.dry_run,
            {.help = "print the expected gain of several GPUs; measure nothing",
             .manual = R"(Prints the gain that a cost model expects of 2, 4 and 8 GPUs, and of the numbers in --gpus. It
                 measures nothing. The value gives the milliseconds of a step on one GPU and, after a comma, the GB/s
                 that a GPU can send.)",
             .example = "sparsereel bench pipeline -m MODEL --dry-run 5180,340",
             .in_help = InHelp::all},
            "MS");
  command.get_option("--dry-run")->expected(0, 1);
  group.add(
      "--against", options.against,
      {.help = "add the rows of a report of diffusers",
       .manual = R"(Adds the rows of another program's report to the table. tests/bench/diffusers_report.py measures
           diffusers on the same configuration and writes such a report.)",
       .example = example + "--against baseline.json",
       .in_help = InHelp::all},
      "FILE");
}

void add_measuring(CLI::App& command, PipelineOptions& options) {
  const OptionGroup group(command, "Measuring");
  const std::string example = kExample;
  group.add("--steps", options.steps,
            {.help = "steps of a run (default 4; with a cache the model's number)",
             .manual = R"(Sets how many steps each run has. All are timed, and the time of a whole video is
                 extrapolated from them. The default is 4, or with a cache the model's number. To compare quality,
                 give the model's number too.)",
             .example = example + "--steps 10"},
            "N");
  group.add("--warmup", options.warmup,
            {.help = "steps that do not count (default 2, on a CPU 1)",
             .manual = "Sets how many steps run before the measurement. Meanwhile, clocks and caches settle.",
             .example = example + "--warmup 4",
             .in_help = InHelp::all},
            "N");
  group.add("--repetitions", options.repetitions,
            {.help = "runs that count (default 3, on a CPU 1)",
             .manual = "Sets how many runs count. More runs take longer and make the median more certain.",
             .example = example + "--repetitions 5"},
            "N");
}

}  // namespace

void add_options(CLI::App& command, PipelineOptions& options) {
  const OptionGroup what(command, "What to measure");
  add_rows(what, options);
  add_extras(command, what, options);
  add_measuring(command, options);
  const OptionGroup output(command, "Output and reports");
  output.add("--heat-map", options.heat_map,
             {.help = "draw the sparsity of each layer and step (.png, .svg, .pdf)",
              .manual = "Draws how many blocks each layer leaves out in each step. It needs gnuplot and a sparse row.",
              .example = std::string(kExample) + "--topk 0.3 --heat-map map.png",
              .in_help = InHelp::all},
             "FILE");
  add_table_options(output, options.table, kExample);
}

}  // namespace sparsereel::app::bench
