// Turns the options into contenders.
#include "app/lab/bench/pipeline_plan.h"

#include <algorithm>

#include "app/options/nearest.h"
#include "app/options/option_group.h"
#include "models/request/sampling.h"

namespace sparsereel::app::bench {
namespace {

constexpr int64_t kDefaultSteps = 4;  // enough to measure time; a good video takes more
constexpr const char* kPrompt = "a red circle moving to the right on a blue background";

Grid contenders(const Settings& settings, const PipelineOptions& options, const GenerateOptions& given) {
  Compared compared{.modes = parse_modes(options.modes, {"full", "quantized", "sparse"})};
  if (given.profile) compared.profiles = {read_profile_policy(given.profile->file.string())};
  Grid grid = expand(settings, options.lists, compared);
  for (Combination& each : grid.combinations) {  // one pipeline serves all
    if (each.weights != given.request.weights)
      grid.warnings.push_back("--profile " + each.profile + ": its weights " + each.weights +
                              " have no effect, because one model serves all rows: give --weights " + each.weights);
    each.weights = given.request.weights;
  }
  return grid;
}

/// Warns of selection options if no contender drops blocks, and of options of means if none uses means.
void warn_of_selection(const Settings& settings, std::vector<NoEffectCause> no_effect, PipelinePlan& plan) {
  const std::vector<Combination>& rows = plan.grid.combinations;
  PipelineOptions& options = plan.options;
  plan.warnings = plan.grid.warnings;
  if (std::ranges::none_of(rows, &Combination::sparse)) {
    const std::string why = "with --modes " + options.modes;
    if (!options.heat_map.empty()) plan.warnings.push_back("--heat-map has no effect " + why);
    if (is_given(options.lists, "token_order") && parse_orders(*options.lists.at("token_order")).size() > 1)
      plan.warnings.push_back("--token-order: all but the first have no effect " + why);
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
  if (given.profile)
    plan.profiles = {models::describe_profile(given.profile->file, models::read_profile(given.profile->file))};
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
  request.num_inference_steps = plan.options.steps.value_or(cached ? plan.video_steps : kDefaultSteps);
  if (request.num_inference_steps != plan.video_steps) request.sigmas.clear();
}

void add_options(CLI::App& command, PipelineOptions& options) {
  const OptionGroup what(command, "What to measure");
  const OptionGroup measuring(command, "Measuring");
  const OptionGroup output(command, "Output and reports");
  what.add("--modes", options.modes, "comma list (default full,quantized,sparse)", "MODES");
  add_selection_lists(what, options.lists, "as generate");
  add_list(what, options.lists, "token_order", "orders of mode sparse (default hilbert)");
  add_list(what, options.lists, "cache", "as generate takes it (default 0: none)");
  add_list(what, options.lists, "gpus", "how many make a video together (default 1)");
  what.flag("--no-decode", options.no_decode, "leave decoding, and with it frames and their quality, out");
  output.add("--heat-map", options.heat_map, "draw the sparsity of each layer and step into this .png, .svg or .pdf",
             "FILE");
  what.add("--dry-run", options.dry_run, "expected of several GPUs, by ms a step on one,GB/s of links", "MS");
  command.get_option("--dry-run")->expected(0, 1);
  what.add("--against", options.against, "add the rows of a rival's report (tests/bench/diffusers_report.py)", "FILE");
  measuring.add("--steps", options.steps,
                "steps of each run, all timed (default 4, with a cache the model's number; quality needs that)", "N");
  measuring.add("--warmup", options.warmup, "steps that do not count (default 2, on a CPU 1)", "N");
  measuring.add("--repetitions", options.repetitions, "runs over all steps that count (default 3, on a CPU 1)", "N");
  add_table_options(output, options.table);
}

}  // namespace sparsereel::app::bench
