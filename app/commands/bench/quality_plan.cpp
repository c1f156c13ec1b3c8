// From options to prompts and combinations.
#include "app/commands/bench/quality_plan.h"

#include <algorithm>

#include "app/commands/batch/prompt_set.h"
#include "app/commands/bench/judge.h"
#include "app/options/nearest.h"
#include "app/options/split.h"
#include "attention/policies/profile.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

std::vector<std::string> read_first_prompts(const QualityOptions& options) {
  check_range("--limit", options.limit, 1, 1'000'000);
  std::vector<std::string> prompts = sets::read_prompts(options.prompts);
  if (options.limit) prompts.resize(std::min(prompts.size(), static_cast<size_t>(*options.limit)));
  return prompts;
}

/// Of options without effect.
std::vector<std::string> warnings_of(const Settings& settings, const QualityOptions& options, const QualityPlan& plan,
                                     std::vector<IdleCause> idle) {
  std::vector<std::string> warnings = plan.grid.warnings;
  const auto is_untuned = [](const Combination& each) { return !each.full && each.profile.empty(); };
  if (!plan.profiles.empty() && std::ranges::none_of(plan.grid.combinations, is_untuned))
    idle.push_back({Idle::profile, "profile", kBesideProfilesAlone});
  for (std::string& warning : idle_warnings(settings, idle)) warnings.push_back(std::move(warning));
  if (!options.plot.empty() && plan.plot.empty())
    warnings.emplace_back("--plot has no effect with --timed-steps 0: there are no times to draw");
  return warnings;
}

}  // namespace

models::GenerateRequest QualityPlan::request_of(size_t prompt) const {
  models::GenerateRequest result = request;
  result.prompt = prompts.at(prompt);
  result.seed += prompt;
  result.attention_mode = attention::Mode::full;
  return result;
}

models::GenerateRequest QualityPlan::request_of(size_t prompt, const Combination& combination,
                                                attention::Mode mode) const {
  models::GenerateRequest result = request_of(prompt);
  result.attention_mode = combination.full ? attention::Mode::full : mode;
  result.attention_policy = combination.policy;
  result.token_order = combination.order;
  result.cache = combination.cache;
  return result;
}

QualityPlan make_quality_plan(const Settings& settings, const QualityOptions& options) {
  check_range("--timed-steps", options.timed_steps, 0, 1000);
  QualityPlan plan;
  const GenerateOptions given = read_generate_options(settings, /*prompt_needed=*/false);
  plan.run = given.run;
  plan.request = given.request;
  plan.request.cache = {};  // the combinations'
  plan.prompts = read_first_prompts(options);
  std::vector<ProfilePolicy> profiles;
  const attention::Policy untuned = read_untuned_policy(settings);
  for (const std::string& file : split(options.lists.profile.value_or(settings.text("profile", "")), ',')) {
    if (file.empty() && !options.lists.profile) continue;  // there is none
    const attention::Profile profile = read_profile(file);
    plan.profiles.push_back(describe_profile(file, profile));
    profiles.push_back({.file = file, .policy = attention::policy_of(profile)});
    if (settings.has("dense_layers")) profiles.back().policy.dense_layers = untuned.dense_layers;
  }
  QualityLists lists = options.lists;
  lists.selection.usual_topk = !settings.has("topk");
  if (!lists.cache) lists.cache = settings.text("cache");
  const bool weights_are_reduced = plan.run.weights != "auto" || plan.run.text_weights != "auto";
  plan.grid = expand(lists, untuned, plan.request.token_order, profiles, weights_are_reduced);
  plan.timed_steps = options.timed_steps;
  plan.check = !options.no_rel_l1;
  plan.judge = options.judge.empty() ? judge_beside(plan.run.model) : std::filesystem::path(options.judge);
  if (options.timed_steps != 0) plan.plot = options.plot;
  plan.pictures = options.pictures;
  plan.format = parse_format(options.format, options.output);
  plan.warnings = warnings_of(settings, options, plan, given.idle);
  return plan;
}

}  // namespace sparsereel::app::bench
