// Turns the options of `bench quality` into prompts and combinations.
#include "app/lab/bench/quality_plan.h"

#include <algorithm>

#include "app/counted.h"
#include "app/jobs/batch/prompt_set.h"
#include "app/lab/bench/classifier.h"
#include "app/lab/bench/comparison.h"
#include "app/lab/bench/list_options.h"
#include "app/options/nearest.h"
#include "app/options/option_group.h"
#include "attention/policies/profile.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;

std::vector<std::string> read_first_prompts(const QualityOptions& options) {
  check_range("--limit", options.limit, 1, 1'000'000);
  std::vector<std::string> prompts = sets::read_prompts(options.prompts);
  if (options.limit) prompts.resize(std::min(prompts.size(), static_cast<size_t>(*options.limit)));
  return prompts;
}

std::vector<ProfilePolicy> read_profiles(const Settings& settings, const QualityOptions& options, QualityPlan& plan) {
  std::vector<std::string> files = options.profiles();
  if (files.empty() && settings.has("profile")) files = {*settings.text("profile")};
  std::vector<ProfilePolicy> policies;
  for (const std::string& file : files) {
    plan.profiles.push_back(models::read_profile(file));
    policies.push_back(policy_of(plan.profiles.back()));
  }
  return policies;
}

std::vector<std::string> items_of(const Lists& lists, const std::string& key) {
  return is_given(lists, key) ? split(*lists.at(key), ',') : std::vector<std::string>{};
}

/// Returns true if the options list presets, and nothing else except perhaps weights.
bool are_presets_alone(const QualityOptions& options) {
  return is_given(options.lists, "preset") && !options.modes &&
         std::ranges::none_of(options.lists, [](const auto& list) {
           return list.second && list.first != "preset" && list.first != "weights";
         });
}

std::vector<Mode> modes_of(const QualityOptions& options) {
  if (are_presets_alone(options)) return {};
  std::vector<Mode> modes = parse_modes(options.modes.value_or("sparse"), {"full", "quantized", "sparse"});
  std::ranges::sort(modes);
  return modes;
}

/// Returns full attention with each listed kind of weights that differs from the reference's.
std::vector<Combination> reduced_weights(const QualityOptions& options, const QualityPlan& plan) {
  std::vector<std::string> weights = items_of(options.lists, "weights");
  if (weights.empty()) weights = {plan.request.weights};
  std::vector<Combination> rows;
  for (const std::string& each : weights) {
    if (each == "auto" && plan.request.text_weights == "auto") continue;
    if (std::ranges::find(rows, each, &Combination::weights) != rows.end()) continue;
    rows.push_back(plan.full());
    rows.back().weights = each;
    rows.back().terms.push_back("weights=" + each);
  }
  return rows;
}

Grid combinations(const Settings& settings, const QualityOptions& options, QualityPlan& plan) {
  Compared compared{
      .modes = modes_of(options), .profiles = read_profiles(settings, options, plan), .profiles_alone = true};
  for (const std::string& preset : items_of(options.lists, "preset"))
    compared.presets.push_back({preset, with_preset(settings, preset)});
  Grid grid = expand(settings, options.lists, compared);
  const auto reference = [](const Combination& each) { return each.mode == Mode::full && !each.cache.on(); };
  for (const Combination& each : grid.combinations)
    if (reference(each) && each.weights == "auto" && !each.preset.empty())
      grid.left_out.push_back("--preset " + each.preset + ", which is full attention, the baseline of all rows");
  std::erase_if(grid.combinations, reference);
  const std::vector<Combination> reduced = reduced_weights(options, plan);
  grid.combinations.insert(grid.combinations.begin(), reduced.begin(), reduced.end());
  if (grid.combinations.empty())
    throw bad_input((options.modes ? "--modes " + *options.modes : "--preset " + *options.lists.at("preset")) +
                        ": full attention without a cache is the baseline of all rows",
                    "give a cache, as with --cache 0.1,0.2, or other weights, as with --weights fp8");
  return grid;
}

std::vector<std::string> warnings_of(const Settings& settings, const QualityPlan& plan,
                                     std::vector<NoEffectCause> no_effect) {
  std::vector<std::string> warnings = plan.grid.warnings;
  if (!plan.profiles.empty() && std::ranges::none_of(plan.grid.combinations, &Combination::untuned))
    no_effect.push_back({NoEffect::profile, "profile", kBesideProfilesAlone});
  for (std::string& warning : no_effect_warnings(settings, no_effect)) warnings.push_back(std::move(warning));
  if (plan.times && plan.options.timed_steps) warnings.emplace_back("--timed-steps has no effect with --times");
  if (!plan.times && plan.options.timed_steps == 0 && !plan.options.plot.empty())
    warnings.emplace_back("--plot has no effect with --timed-steps 0: there are no times to draw");
  return warnings;
}

}  // namespace

std::vector<std::string> QualityOptions::profiles() const {
  return items_of(lists, "profile");
}

models::Plan QualityPlan::video_of(size_t prompt, const Combination& combination, Mode mode) const {
  models::Plan result = VideoPlan::video_of(combination);
  result.prompt = prompts.at(prompt);
  result.seed += prompt;
  if (combination.sparse()) result.attention_mode = mode;
  return result;
}

int64_t QualityPlan::rounds_to_time() const {
  const int64_t steps = video.num_inference_steps;
  if (!options.timed_steps) return steps;
  int64_t dense = 0;
  for (const Combination& each : grid.combinations) dense = std::max(dense, each.policy.dense_steps);
  return *options.timed_steps == 0 ? 0 : std::min(steps, dense + *options.timed_steps);
}

std::string check_times(const QualityPlan& plan) {
  const std::vector<Combination>& rows = plan.grid.combinations;
  const auto cached = std::ranges::count_if(rows, [](const Combination& each) { return each.cache.on(); });
  const int64_t asked = plan.options.timed_steps.value_or(0), steps = plan.video.num_inference_steps;
  if (!plan.times && asked > steps)
    return "--timed-steps " + std::to_string(asked) + ": a video has " + counted(steps, "step") + ", so all are timed";
  if (plan.times || cached == 0 || plan.rounds_to_time() == 0 || plan.times_caches()) return {};
  const std::string given = "--timed-steps " + std::to_string(*plan.options.timed_steps);
  const std::string why = "the " + counted(plan.video.num_inference_steps, "step") +
                          " of a whole video, because a few do not show how many are reused";
  if (cached == std::ssize(rows) && !plan.options.plot.empty())
    throw bad_input("--plot " + plan.options.plot + " would show nothing: every row has a cache, and with " + given +
                        " no row with a cache is timed: timing a cache takes " + why,
                    "leave out --timed-steps, or leave out --plot");
  return "with " + given + " no row with a cache is timed: timing a cache takes " + why;
}

QualityPlan make_quality_plan(const Settings& settings, const QualityOptions& options) {
  check_range("--timed-steps", options.timed_steps, 0, 1000);
  const GenerateOptions given = read_generate_options(settings, /*prompt_needed=*/false);
  QualityPlan plan{make_video_plan(given, options.lists), options, read_first_prompts(options)};
  if (const std::vector<std::string> weights = items_of(options.lists, "weights"); !weights.empty())
    plan.request.weights = weights.size() == 1 ? weights.front() : "auto";
  plan.grid = combinations(settings, options, plan);
  const std::vector<Combination>& rows = plan.grid.combinations;
  if (!options.against.empty()) plan.against = find_row(options.against, rows, names_of(rows));
  if (!options.times.empty()) plan.times = read_step_times(split(options.times, ','));
  const auto sparse = std::ranges::find_if(plan.grid.combinations, &Combination::sparse);
  if (sparse != plan.grid.combinations.end()) plan.request.policy = sparse->policy;  // the report shows its values
  plan.warnings = warnings_of(settings, plan, given.no_effect);
  if (options.judge.empty()) plan.options.judge = classifier_beside(plan.run.model);
  if (plan.times) plan.options.timed_steps = 0;
  if (!plan.times && options.timed_steps == 0) plan.options.plot.clear();
  return plan;
}

namespace {

constexpr const char* kQuality = "sparsereel bench quality prompts.txt ";  // begins the examples

void add_prompts(CLI::App& command, QualityOptions& options) {
  command
      .add_option("PROMPTS", options.prompts,
                  packed({.help = "prompts: .txt (one a line), .jsonl, .csv or .yaml; - is standard input",
                          .manual = R"(Names the prompts whose videos are compared. Each prompt costs one video with
                              full attention and one video for each row. Use prompts that were not used to choose
                              settings.)",
                          .example = "sparsereel bench quality prompts.txt --limit 4 --topk 0.5,0.3"}))
      ->type_name("FILE")
      ->required();
}

/// Adds the lists, whose combinations are the rows of the table.
void add_lists(CLI::App& command, QualityOptions& options) {
  const OptionGroup group(command, "Comma lists, expanded to all combinations", /*holds_lists=*/true);
  const std::string example = kQuality;
  Lists& lists = options.lists;
  add_selection_lists(group, lists, "bench quality prompts.txt", "as generate");
  add_list(group, lists, kRows, {.example = example + "--selection-rows 64,192"});
  add_list(group, lists, "similarity", {.example = example + "--dropped none --select mass --similarity 0.3,0.5"});
  add_list(group, lists, "profile",
           {.help = "profiles of tune, each a row of its own",
            .manual = R"(Takes a comma list of profiles of 'sparsereel tune', and measures a row for each. A profile
                chooses its own blocks, so it is not combined with lists like --topk.)",
            .example = example + "--preset balanced --profile profile.yaml"});
  add_list(group, lists, "dense_steps",
           {.help = "first steps that compute every block: 0,20% (default 0)",
            .example = example + "--topk 0.3 --dense-steps 0,20%",
            .in_help = InHelp::all});
  add_list(group, lists, "token_order", {.example = example + "--topk 0.3 --token-order hilbert,native"});
  add_list(group, lists, "cache",
           {.help = "caches, as generate takes them (default 0: none)",
            .example = example + "--modes full --cache 0.1,forecast:0.1"});
  add_list(group, lists, "weights",
           {.help = "fp8 and int8 add a row of full attention",
            .manual = R"(Takes one or several of auto, fp8 and int8. fp8 and int8 measure 8-bit weights. They also add
                a row of full attention with these weights, which shows how the weights alone change the video.)",
            .example = example + "--weights fp8"});
  add_list(group, lists, "preset",
           {.help = "presets as they are; alone: no other rows",
            .manual = R"(Takes a comma list of presets, and measures a row for each, as generate would use it. Unless
                you give another list, there are no other rows.)",
            .example = example + "--preset near,balanced,fast"});
  group.add("--modes", options.modes,
            {.help = "full, quantized, sparse (default sparse)",
             .manual = R"(Chooses the methods of attention to measure. full measures caches and 8-bit weights with
                 full attention; quantized measures every block in 8 bits. Full attention without a cache is the
                 baseline, so it has no row.)",
             .example = example + "--modes quantized,sparse --topk 0.3"},
            "MODES");
}

/// Adds the options that say how many videos and steps are measured.
void add_extent(const OptionGroup& group, QualityOptions& options) {
  const std::string example = kQuality;
  group.add("--limit", options.limit,
            {.help = "use only the first N prompts",
             .manual = "Uses only the first N prompts. More prompts show smaller differences.",
             .example = example + "--limit 4"},
            "N");
  group.add("--timed-steps", options.timed_steps,
            {.help = "steps to time; 0: none (default: a whole video's)",
             .manual = R"(Times so many steps of each row, which take turns with steps of full attention. The default
                 is all steps of the first prompt's video. If you give fewer, rows with a cache get no time. 0
                 measures quality only.)",
             .example = example + "--topk 0.5 --timed-steps 3",
             .in_help = InHelp::all},
            "N");
  group.add("--times", options.times,
            {.help = "take times from reports of bench pipeline for another model",
             .manual = R"(Takes times from JSON reports of 'bench pipeline' of another model, so that a table shows
                 the quality of a small model with the speed of a large one. The reports must have each mode and
                 topk.)",
             .example = example + "--topk 0.5,0.3 --times large.json",
             .in_help = InHelp::all},
            "FILE,FILE");
}

/// Adds the options that say how videos are compared.
void add_comparison(const OptionGroup& group, QualityOptions& options) {
  const std::string example = kQuality;
  group.add(
      "--against", options.against,
      {.help = "compare each row with this one: quantized, or topk=0.5,cache=0",
       .manual = R"(Compares every row with this one, prompt by prompt, and shows the mean difference in PSNR with its
           standard error. This difference is far more certain than the difference of two mean PSNRs. Name the row by
           its mode and its items of the lists.)",
       .example = example + "--modes quantized,sparse --topk 0.3 --against quantized",
       .in_help = InHelp::all},
      "ROW");
  group.flag("--no-rel-l1", options.no_rel_l1,
             {.help = "leave out the error of attention, which doubles the calls",
              .manual = "Leaves out the error of attention. To measure it, each call is made twice.",
              .example = example + "--topk 0.5 --no-rel-l1",
              .in_help = InHelp::all});
  group.add(
      "--judge", options.judge,
      {.help = "the classifier of the tiny model's videos",
       .manual = R"(Names the classifier, a small network that recognizes shape, color, background and motion in the
           tiny model's videos. The table then says how many videos show what their prompts describe. The default is
           MODEL-training/judge.safetensors beside the folder MODEL, as in the source tree.)",
       .example = example + "--judge assets/tiny-training/judge.safetensors",
       .in_help = InHelp::all},
      "FILE");
}

}  // namespace

void add_options(CLI::App& command, QualityOptions& options) {
  add_prompts(command, options);
  add_lists(command, options);
  const OptionGroup measuring(command, "Measuring");
  add_extent(measuring, options);
  add_comparison(measuring, options);
  const OptionGroup output(command, "Output and reports");
  output.add(
      "--plot", options.plot,
      {.help = "draw PSNR against seconds of denoising (.png, .svg, .pdf)",
       .manual = "Draws the PSNR of each row against its seconds of denoising. It needs gnuplot and measured times.",
       .example = std::string(kQuality) + "--topk 0.5,0.3,0.1 --plot quality.png"},
      "FILE");
  output.add(
      "--pictures", options.pictures,
      {.help = "write frames of the first prompt's videos into this folder",
       .manual =
           "Writes frames of the first prompt's videos into a folder, as pictures. Use them to compare videos by eye.",
       .example = std::string(kQuality) + "--topk 0.5,0.3 --pictures frames",
       .in_help = InHelp::all},
      "DIR");
  add_table_options(output, options.table, kQuality);
}

}  // namespace sparsereel::app::bench
