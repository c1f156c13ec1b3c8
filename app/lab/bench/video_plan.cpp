// Resolves the video that a benchmark measures, and describes it in the report.
#include "app/lab/bench/video_plan.h"

#include <algorithm>

#include "app/counted.h"
#include "app/json_fields.h"
#include "app/lab/measure/run_progress.h"
#include "models/request/fields.h"
#include "models/request/resolve.h"
#include "models/request/sampling.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::bench {
namespace {

/// Returns a JSON object with the config of each component of the model.
nlohmann::json architecture_of(const models::Checkpoint& folder) {
  nlohmann::json architecture;
  for (const std::string& name : folder.roles()) {
    if (name != "tokenizer") architecture[name] = folder.config(name);
  }
  for (const std::string& name : models::architecture_keys()) {
    if (const nlohmann::json setting = folder.setting(name); !setting.is_null()) architecture[name] = setting;
  }
  return architecture;
}

/// Returns the settings that all combinations share: the fields of a recipe, without texts and without the settings in
/// which combinations differ. Adds facts that another program needs to make an equal run.
nlohmann::json run_settings(const VideoPlan& plan, const models::Pipeline& pipeline) {
  const models::ModelSpec& spec = pipeline.spec();
  const models::Plan& video = plan.video;
  nlohmann::json settings = models::recipe_of(video);
  for (const models::Field& field : models::fields())
    if (field.decides == models::RunPart::text) settings.erase(field.name);
  add_image_hashes(settings, video, *plan.pictures);
  for (const auto& [key, file] : {std::pair("image", video.image), std::pair("last_image", video.last_image)})
    if (file == models::kMadeUpImage) settings[key] = "made up";
  for (const char* of_a_combination : {"attention", "token_order"}) settings.erase(of_a_combination);
  const bool both_at_once = video.is_guided() && video.guidance_passes == models::GuidancePasses::batched;
  settings.update({{"model", plan.run.model_name},
                   {"lora_sha256", pipeline.lora_hash()},
                   {"layers", spec.layers},
                   {"heads", spec.heads},
                   {"head_dim", spec.head_dim},
                   {"tokens", static_cast<int64_t>(models::token_count(spec, video.latent, video.text_tokens))},
                   {"text_tokens", video.text_tokens},
                   {"batch", both_at_once ? 2 : 1},
                   {"steps", video.num_inference_steps},
                   {"offload", plan.request.offload == models::Offload::on},
                   {"pv_threshold", video.attention_policy.defaults.pv_threshold}});
  return settings;
}

bool cache_is_of_a_preset(const Settings& settings) {
  const Setting* cache = settings.find("cache");
  return settings.has("preset") && cache != nullptr && cache->source == Source::matched_config;
}

/// Warns if the combination's cache can reuse nothing. Adds each such warning only once.
void add_cache_warning(const Settings& settings, const Combination& combination, const models::ModelSpec& spec,
                       VideoPlan& plan) {
  models::Request request = plan.request;
  request.cache = combination.cache;
  const std::string why = models::why_cache_has_no_effect(request, spec);
  if (why.empty()) return;
  std::string named = "--cache " + models::name(combination.cache);
  if (!combination.preset.empty())
    named = "--preset " + combination.preset;
  else if (!plan.caches_listed)
    named = settings.describe(cache_is_of_a_preset(settings) ? "preset" : "cache");
  const std::string warning = named + " has no effect " + why;
  if (std::ranges::find(plan.warnings, warning) == plan.warnings.end()) plan.warnings.push_back(warning);
}

}  // namespace

models::Plan VideoPlan::video_of(const Combination& combination) const {
  models::Plan result = video;
  result.attention_mode = combination.mode;
  if (combination.sparse()) result.attention_policy = combination.policy;
  result.token_order = combination.order;
  result.cache = combination.cache;
  result.exact_steps = combination.exact ? combination.exact->of(result.num_inference_steps) : 0;
  return result;
}

VideoPlan make_video_plan(const GenerateOptions& given, const Lists& lists) {
  VideoPlan plan{.run = given.run, .request = given.request, .caches_listed = is_given(lists, "cache")};
  plan.request.attention_mode = attention::Mode::full;  // each combination sets its own mode and cache
  plan.request.cache = {};
  return plan;
}

void begin_report(const Settings& settings, VideoPlan& plan, const models::Checkpoint& folder,
                  const models::Pipeline& pipeline, RunReport& report, int64_t ranks) {
  for (const models::TunedProfile& profile : plan.profiles)
    models::check_profile(profile, plan.run.model.string(), pipeline.model_hash(), pipeline.heads());
  settle_images(settings, pipeline.spec(), plan.request, *plan.pictures);
  plan.video = pipeline.resolve(plan.request, plan.decode, ranks);
  check_image_shapes(plan.video, pipeline.spec(), *plan.pictures);
  for (Combination& combination : plan.grid.combinations) combination.settle(plan.video.num_inference_steps);
  add_model_warnings(plan.warnings, settings, plan.run.model, plan.request, plan.video, pipeline);
  for (const Combination& combination : plan.grid.combinations)
    add_cache_warning(settings, combination, pipeline.spec(), plan);
  report_choices(plan.grid, plan.warnings, report);
  report_run(pipeline.device(), report);
  report.content["architecture"] = architecture_of(folder);
  report.content["settings"] = run_settings(plan, pipeline);
}

void settle_tokens(nlohmann::json& settings, const models::ModelSpec& spec, const models::Plan& video,
                   int64_t text_tokens) {
  if (spec.prompt.has_length) return;
  const int64_t behind_video = text_tokens + models::keyframe_tokens(video, spec);
  settings["tokens"] = static_cast<int64_t>(models::token_count(spec, video.latent, behind_video));
  settings["text_tokens"] = text_tokens;
}

std::string run_summary(const nlohmann::json& report) {
  const nlohmann::json &machine = report.at("machine"), &settings = report.at("settings");
  const auto number = [&](const char* key) { return std::to_string(settings.at(key).get<int64_t>()); };
  std::string text = machine.at("name").get<std::string>();
  if (machine.at("device") == "cpu") text += ", " + counted(machine.at("threads").get<int>(), "thread");
  std::string weights;
  if (settings.contains("weights")) weights += ", weights in " + text_of(settings, "weights");
  if (settings.contains("text_weights")) weights += ", text weights in " + text_of(settings, "text_weights");
  if (settings.contains("lora")) weights += ", LoRA " + text_of(settings, "lora");
  for (const auto& [key, name] : {std::pair("image", ", image "), std::pair("last_image", ", last image ")})
    if (settings.contains(key)) weights += name + text_of(settings, key);
  return text + ", " + settings.at("model").get<std::string>() + ", " + settings.at("dtype").get<std::string>() +
         weights + ", " + counted(settings.at("frames").get<int64_t>(), "frame") + " of " + number("width") + "x" +
         number("height") + " (" + number("tokens") + " tokens, guidance batch " + number("batch") + "), " +
         counted(settings.at("steps").get<int64_t>(), "step") + ", seed " + number("seed");
}

}  // namespace sparsereel::app::bench
