// From options to contenders.
#include "app/commands/bench/pipeline_plan.h"

#include <algorithm>

#include "app/commands/bench/lists.h"
#include "app/options/nearest.h"
#include "hilbert/error.h"
#include "models/engine/request.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;

constexpr int64_t kDefaultSteps = 4;  // a run is for its time; its video is better with more
constexpr const char* kPrompt = "a red circle moving to the right on a blue background";

/// Options of the selection change nothing where no contender leaves blocks out.
void warn_of_selection(const PipelineOptions& options, PipelinePlan& plan, std::vector<IdleCause>& idle) {
  const std::string why = "with --modes " + options.modes;
  std::vector<std::string> given = options.sparse.given();
  if (!options.heat_map.empty()) given.emplace_back("--heat-map");
  for (const std::string& option : given) plan.warnings.push_back(option + " has no effect " + why);
  plan.heat_map.clear();
  plan.profile.reset();
  idle.push_back({Idle::every_block, "modes", why});
}

/// One for each row of mode sparse, of the lists and of what other sources give.
Selections make_policies(const Settings& settings, const PipelineOptions& options, std::vector<IdleCause>& idle) {
  SelectionLists lists = options.sparse;
  lists.usual_topk = !settings.has("topk");
  Selections selections = combine(lists, read_untuned_policy(settings));
  const auto has_means = [](const attention::Policy& policy) { return policy.dropped == attention::Dropped::mean; };
  if (std::none_of(selections.policies.begin(), selections.policies.end(), has_means))
    idle.push_back({Idle::no_means, "dropped", "without means for dropped blocks"});
  return selections;
}

/// The order of the tokens changes which blocks are kept, and nothing where all are: only sparse runs in each.
void add_contenders(const Settings& settings, const PipelineOptions& options, PipelinePlan& plan,
                    std::vector<IdleCause>& idle) {
  const std::vector<Mode> modes = parse_modes(options.modes);
  const bool sparse = std::find(modes.begin(), modes.end(), Mode::sparse) != modes.end();
  Selections selections;
  if (sparse)
    selections = make_policies(settings, options, idle);
  else
    warn_of_selection(options, plan, idle);
  plan.left_out = selections.left_out;
  plan.warnings.insert(plan.warnings.end(), selections.warnings.begin(), selections.warnings.end());
  const std::string token_orders = options.token_orders.value_or(settings.text("token_order", "hilbert"));
  const std::vector<hilbert::TokenOrder> orders = parse_orders(token_orders);
  if (orders.size() > 1 && !sparse)
    plan.warnings.push_back("--token-order: all but the first have no effect with --modes " + options.modes);
  std::vector<PipelineContender>& contenders = plan.contenders;
  for (const Mode mode : modes) {
    if (mode != Mode::sparse) {
      contenders.push_back({.mode = mode, .policy = {}, .order = orders.front()});
      continue;
    }
    for (const hilbert::TokenOrder order : orders)
      for (const attention::Policy& policy : selections.policies)
        contenders.push_back({.mode = mode, .policy = policy, .order = order});
    if (settings.has("profile"))
      contenders.push_back({.mode = mode, .policy = {}, .profile = true, .order = orders.front()});
  }
}

void give_caches(const Settings& settings, const PipelineOptions& options, std::vector<PipelineContender>& contenders) {
  const std::string list = options.caches.value_or(settings.text("cache", "0"));
  const auto caches = parse_list<models::CacheRule>(list, models::parse_cache_rule);
  std::vector<PipelineContender> given;
  for (PipelineContender& contender : contenders)
    for (const models::CacheRule& cache : caches) {
      contender.cache = cache;
      given.push_back(contender);
    }
  contenders = std::move(given);
}

}  // namespace

models::GenerateRequest PipelinePlan::request_of(const PipelineContender& contender) const {
  models::GenerateRequest result = request;
  result.attention_mode = contender.mode;
  result.token_order = contender.order;
  if (contender.policy) result.attention_policy = *contender.policy;
  result.cache = contender.cache;
  return result;
}

PipelinePlan make_pipeline_plan(const Settings& settings, const PipelineOptions& options) {
  check_range("--warmup", options.warmup, 0, 1000);
  check_range("--repetitions", options.repetitions, 1, 1000);
  if (options.steps) check_range("--steps", *options.steps, 1, 1'000'000);
  PipelinePlan plan;
  const GenerateOptions given = read_generate_options(settings, /*prompt_needed=*/false);
  plan.run = given.run;
  plan.request = given.request;
  plan.request.cache = {};  // the contenders'
  plan.profile = given.profile;
  if (!settings.has("prompt") && !settings.has("prompt_file")) plan.request.prompt = kPrompt;
  plan.heat_map = options.heat_map;
  std::vector<IdleCause> idle = given.idle;
  add_contenders(settings, options, plan, idle);
  give_caches(settings, options, plan.contenders);
  for (std::string& warning : idle_warnings(settings, idle)) plan.warnings.push_back(std::move(warning));
  plan.warmup = options.warmup;
  plan.repetitions = options.repetitions;
  plan.decode = plan.request.decode = !options.no_decode;
  plan.format = parse_format(options.format, options.output);
  return plan;
}

void choose_steps(const PipelineOptions& options, const models::ModelSpec& spec, PipelinePlan& plan) {
  models::GenerateRequest& request = plan.request;
  plan.video_steps = models::steps_of(request, spec);
  const bool cached = std::ranges::any_of(plan.contenders, [](const auto& each) { return each.cache.on(); });
  request.num_inference_steps = options.steps.value_or(cached ? plan.video_steps : kDefaultSteps);
  if (request.num_inference_steps != plan.video_steps) request.sigmas.clear();
}

}  // namespace sparsereel::app::bench
