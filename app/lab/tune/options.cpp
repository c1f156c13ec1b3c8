// Turns the options of `tune` into a plan.
#include "app/lab/tune/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "app/jobs/batch/prompt_set.h"
#include "app/options/nearest.h"
#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"
#include "models/request/asked_policy.h"

namespace sparsereel::app::tuning {
namespace {

constexpr double kLongest = 30.0 * 24 * 3600;

/// The goal if the user gives none: the least mean PSNR over prompts, and the least PSNR of a single prompt, in dB. On
/// the prompts on which the preset balanced was chosen, its PSNRs were higher.
constexpr double kBalancedPsnr = 40, kBalancedLowest = 36;

void check_bound(const char* option, double value) {
  if (!(value > 0 && value <= 1))
    throw bad_input(std::string(option) + " " + exact_text(value) + " is not above 0 and at most 1",
                    "give a head's largest relative L1 error, such as 0.06");
}

void check_goal(const TuneOptions& options) {
  if (options.min_psnr && !(*options.min_psnr > 0 && *options.min_psnr <= 100))
    throw bad_input("--min-psnr " + exact_text(*options.min_psnr) + " is outside 0 to 100 dB",
                    "give decibels, such as 35");
  if (options.percentile && !(*options.percentile >= 0 && *options.percentile <= 50))
    throw bad_input("--percentile " + exact_text(*options.percentile) + " is outside 0 to 50",
                    "give for example 5; 0 is the worst video");
  if (options.percentile && !options.min_psnr)
    throw bad_input("--percentile is given without --min-psnr",
                    "add --min-psnr, the PSNR that the percentile must reach");
  if (options.min_ssim && !(*options.min_ssim > 0 && *options.min_ssim <= 1))
    throw bad_input("--min-ssim " + exact_text(*options.min_ssim) + " is outside 0 to 1", "give for example 0.95");
  if (options.at_most && !(*options.at_most > 0 && *options.at_most <= kLongest))
    throw bad_input(
        "--at-most " + exact_text(*options.at_most) + " is not above 0 and up to " + exact_text(kLongest) + " s",
        "give the seconds that denoising a video may take");
  if (options.videos > 0) return;
  for (const auto& [name, given] : {std::pair{"--min-psnr", options.min_psnr.has_value()},
                                    {"--min-ssim", options.min_ssim.has_value()},
                                    {"--at-most", options.at_most.has_value()},
                                    {"--times", !options.times.empty()}})
    if (given)
      throw bad_input(std::string(name) + " contradicts --videos 0, which compares no videos", "leave one of them out");
}

Goal goal_of(const TuneOptions& options) {
  if (!options.min_psnr && !options.min_ssim && !options.at_most)
    return {.min_psnr = kBalancedPsnr, .min_tail = kBalancedLowest};
  if (options.percentile)
    return {.min_ssim = options.min_ssim,
            .min_tail = options.min_psnr,
            .tail = *options.percentile,
            .at_most = options.at_most};
  return {.min_psnr = options.min_psnr, .min_ssim = options.min_ssim, .at_most = options.at_most};
}

void check_options(const TuneOptions& options) {
  if (options.l1) check_bound("--l1", *options.l1);
  if (options.l2) check_bound("--l2", *options.l2);
  if (options.l1 && options.l2 && *options.l2 < *options.l1)
    throw bad_input("--l2 " + exact_text(*options.l2) + " is below --l1 " + exact_text(*options.l1),
                    "l2 bounds the block selection and the skipped P.V together: give at least l1");
  check_range("--samples", options.samples, 1, 1000);
  check_range("--videos", options.videos, 0, 1000);
  check_goal(options);
}

/// Returns the model's presets, except the preset with full attention alone, which is the reference and cannot be
/// chosen.
std::vector<Preset> presets_of(const Settings& settings) {
  std::vector<Preset> presets;
  for (const std::string& name : settings.preset_names()) {
    const Candidate candidate = candidate_of(with_preset(settings, name));
    if (candidate.mode != attention::Mode::full) presets.push_back({name, candidate});
  }
  return presets;
}

/// Returns the options of block selection that the user gave, except those that say how many blocks are computed.
std::map<std::string, std::string> given_selection(const Settings& settings) {
  std::map<std::string, std::string> given;
  for (const models::Option& option : settings.options().all()) {
    const Setting* setting = settings.find(option.key);
    if (setting != nullptr && setting->source != Source::matched_config &&
        has_no_effect(option, NoEffect::every_block) && option.key != "topk" && option.key != "block_error" &&
        option.key != "dense_steps")
      given[option.key] = setting->value;
  }
  return given;
}

}  // namespace

double parse_duration(const std::string& text) {
  const auto fail = [&] {
    return bad_input("--budget " + text + " is not a length of time", "write for example 90s, 10m or 1h30m");
  };
  double seconds = 0;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    double value = 0;
    const auto [stop, error] = std::from_chars(at, end, value, std::chars_format::fixed);
    if (error != std::errc{} || value < 0) throw fail();
    const char unit = stop < end ? *stop : 's';
    if (unit != 's' && unit != 'm' && unit != 'h') throw fail();
    seconds += value * (unit == 'h' ? 3600 : unit == 'm' ? 60 : 1);
    at = stop < end ? stop + 1 : stop;
  }
  if (!(seconds > 0) || seconds > kLongest) throw fail();
  return seconds;
}

std::vector<int64_t> TunePlan::sampled_steps(size_t prompt, int64_t steps) const {
  const int64_t count = std::min(samples, steps);
  const double phase = (static_cast<double>(prompt) + 0.5) / static_cast<double>(prompts.size());
  std::vector<int64_t> sampled;
  for (int64_t i = 0; i < count; ++i)
    sampled.push_back(static_cast<int64_t>((static_cast<double>(i) + phase) * static_cast<double>(steps) /
                                           static_cast<double>(count)));
  return sampled;
}

TunePlan make_tune_plan(const Settings& settings, const TuneOptions& options) {
  check_options(options);
  TunePlan plan;
  if (options.prompts.empty() && lacks_prompt(settings))
    throw bad_input("there is no prompt to tune on", "name a file of prompts, or give one with -p \"...\"");
  const GenerateOptions given = read_generate_options(settings, /*prompt_needed=*/options.prompts.empty());
  if (given.random_seed)
    throw bad_option("seed",
                     *settings.text("seed") + " is impossible here, because a resumed search needs the same seed",
                     "give a number");
  plan.run = given.run;
  plan.request = given.request;
  plan.request.cache = {};
  if (options.videos > 0) plan.request.weights = "auto";
  plan.request.dense_steps.reset();                     // candidates have their own dense steps, caches and weights
  plan.request.attention_mode = attention::Mode::full;  // because heads are measured in runs of full attention
  plan.request.policy.reset();  // it may be set, if the file of --config names a profile for `generate`
  std::vector<NoEffectCause> no_effect = given.no_effect;
  if (models::dropped_of(plan.request) == attention::Dropped::none)
    no_effect.push_back({NoEffect::no_means, "dropped", "without means for dropped blocks"});
  plan.warnings = no_effect_warnings(settings, no_effect);
  if (!options.prompts.empty() && settings.has("prompt"))
    throw bad_input("a prompt set and --prompt exclude each other", "give only one of them");
  plan.prompts =
      options.prompts.empty() ? std::vector<std::string>{given.request.prompt} : sets::read_prompts(options.prompts);
  plan.budget = options.budget;
  plan.budget_seconds = parse_duration(options.budget);
  plan.goal = goal_of(options);
  plan.goal_asked = options.min_psnr || options.min_ssim || options.at_most;
  plan.axes = axes_of(settings);
  plan.presets = presets_of(settings);
  plan.given = given_selection(settings);
  if (!options.times.empty()) plan.times = bench::read_step_times(split(options.times, ','));
  const attention::Bounds usual;
  plan.bounds = {.l1 = options.l1.value_or(std::min(usual.l1, options.l2.value_or(usual.l1))),
                 .l2 = options.l2.value_or(std::max(usual.l2, options.l1.value_or(usual.l2)))};
  plan.bounds_asked = plan.bounds.each_call = options.l1 || options.l2;
  plan.samples = options.samples;
  plan.videos = std::min<int64_t>(options.videos, static_cast<int64_t>(plan.prompts.size()));
  if (plan.videos > 0) plan.prompts.resize(static_cast<size_t>(plan.videos));
  plan.output = options.output;
  plan.heat_map = options.heat_map;
  if (plan.times && !plan.heat_map.empty()) {
    plan.warnings.emplace_back("--heat-map has no effect with --times, which holds no times of single heads");
    plan.heat_map.clear();
  }
  return plan;
}

}  // namespace sparsereel::app::tuning
