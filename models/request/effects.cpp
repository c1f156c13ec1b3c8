// Holds the table of causes, and makes the warnings about options without effect.
#include "models/request/effects.h"

#include <algorithm>

#include "hilbert/exact_text.h"
#include "models/request/asked_policy.h"
#include "models/request/sampling.h"

namespace sparsereel::models {
namespace {

struct Row {
  NoEffect no_effect;
  const char* beside;  // key of the option that is the cause
  const char* manual;
  std::string (*why)(const RunFacts&);  // returns an empty text if the cause does not apply
};

/// Returns the option with its value, for a warning. `value` is what the run chose if no source gave a value.
std::string named(const RunFacts& facts, const char* key, std::string_view value) {
  const Settings& settings = *facts.settings;
  return settings.has(key) ? settings.describe(key) : settings.describe(key) + " " + std::string(value);
}

std::string every_block(const RunFacts& facts) {
  using attention::Mode;
  if (facts.attention_mode != Mode::full && facts.attention_mode != Mode::quantized) return {};
  return "with " + named(facts, "attention", attention::name(*facts.attention_mode)) + ", which computes every block";
}

std::string exact(const RunFacts& facts) {
  return facts.attention_mode && is_exact(*facts.settings, *facts.attention_mode) ? every_block(facts) : "";
}

std::string no_guidance(const RunFacts& facts) {
  if (facts.request == nullptr) return {};
  const Settings& settings = *facts.settings;
  if (facts.request->guidance_scale.value_or(settings.fallbacks().guidance) > 1) return {};
  return "without guidance (" + (settings.has("cfg_scale") ? settings.describe("cfg_scale") : "the model's default") +
         ")";
}

std::string no_means(const RunFacts& facts) {
  if (facts.request == nullptr || facts.is_by_head || dropped_of(*facts.request) != attention::Dropped::none) return {};
  return "with " + named(facts, "dropped", "none") + ", which has no means";
}

std::string no_flow(const RunFacts& facts) {
  const bool is_known = facts.request != nullptr && facts.model != nullptr;
  return is_known && !flows(*facts.request, *facts.model) ? "with a scheduler that does not use flow matching" : "";
}

std::string no_reuse(const RunFacts& facts) {
  return facts.request != nullptr && facts.model != nullptr ? why_cache_has_no_effect(*facts.request, *facts.model)
                                                            : "";
}

std::string no_sound(const RunFacts& facts) {
  return facts.model != nullptr && !facts.model->sound.any() ? "for a model that makes no sound" : "";
}

/// Returns `why` if the model is known and its member `takes` is false.
std::string unless_model(const RunFacts& facts, bool ModelSpec::*takes, const char* why) {
  return facts.model != nullptr && !(facts.model->*takes) ? why : "";
}

std::string one_frame_rate(const RunFacts& facts) {
  if (facts.model == nullptr || facts.model->takes_frame_rate) return {};
  return "for a model that makes " + exact_text(facts.model->defaults.fps) + " frames a second";
}

/// Returns the rows about options that some models do not take.
std::vector<Row> rows_of_models() {
  return {{NoEffect::unguided_model, "model", "a model that takes no guidance",
           [](const RunFacts& facts) {
             return unless_model(facts, &ModelSpec::takes_guidance, "for a model that takes no guidance");
           }},
          {NoEffect::whole_prompt, "model", "a model that reads the whole prompt",
           [](const RunFacts& facts) -> std::string {
             const bool cuts = facts.model == nullptr || facts.model->prompt.has_length;
             return cuts ? "" : "for a model that reads the whole prompt";
           }},
          {NoEffect::one_scheduler, "model", "a model with one scheduler",
           [](const RunFacts& facts) {
             return unless_model(facts, &ModelSpec::takes_scheduler, "for a model with one scheduler");
           }},
          {NoEffect::one_frame_rate, "model", "a model that makes videos of one frame rate", one_frame_rate},
          {NoEffect::one_tile_size, "model", "a model whose VAE always works in tiles of one size",
           [](const RunFacts& facts) {
             return unless_model(facts, &ModelSpec::takes_vae_tiling,
                                 "for a model whose VAE always works in tiles of one size");
           }},
          {NoEffect::one_vae_dtype, "model", "a model whose VAE has its own number format",
           [](const RunFacts& facts) {
             return unless_model(facts, &ModelSpec::takes_vae_dtype, "for a model whose VAE has its own number format");
           }},
          {NoEffect::own_fit, "model", "a model that stretches the first image and crops the other one",
           [](const RunFacts& facts) -> std::string {
             const bool has_own = facts.model != nullptr && facts.model->image.has_own_fit();
             return has_own ? "for a model that stretches the first image and crops the other one" : "";
           }}};
}

std::vector<Row> together(std::vector<Row> rows, const std::vector<Row>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> of_requests = {
      {NoEffect::every_block, "attention", "attention full or quantized, which compute every block", every_block},
      {NoEffect::exact, "attention", "attention full, unless the profile sets it", exact},
      {NoEffect::profile, "profile", "profile, which has a policy for each head",
       [](const RunFacts& facts) {
         return facts.is_by_head ? "with " + facts.settings->describe("profile") + ", which has a policy for each head"
                                 : "";
       }},
      {NoEffect::no_means, "dropped", "dropped none, which has no means", no_means},
      {NoEffect::no_guidance, "cfg_scale", "cfg_scale up to 1, which is no guidance", no_guidance},
      {NoEffect::one_transformer, "model", "a model with one transformer",
       [](const RunFacts& facts) -> std::string {
         return facts.model != nullptr && facts.model->experts.size() == 1 ? "for a model with one transformer" : "";
       }},
      {NoEffect::narrow_blocks, "model", "a transformer whose blocks have no layer with sizes that are multiples of 16",
       [](const RunFacts& facts) { return facts.narrow_blocks; }},
      {NoEffect::narrow_layers, "model", "a text encoder without a layer whose sizes are multiples of 16",
       [](const RunFacts& facts) { return facts.narrow_layers; }},
      {NoEffect::no_flow, "scheduler", "a scheduler that does not use flow matching", no_flow},
      {NoEffect::no_reuse, "steps",
       "one step, a transformer with one block, or no more steps than `cache: steps:20` computes", no_reuse},
      {NoEffect::on_a_cpu, "device", "device cpu, whose memory is the host's",
       [](const RunFacts& facts) -> std::string {
         const bool asks =
             facts.request != nullptr && (facts.request->offload == Offload::on || facts.request->max_vram.has_value());
         return asks && facts.on_cpu ? "on a CPU, whose memory is the host's" : "";
       }},
      {NoEffect::in_fp32, "device", "device cpu, which computes attention in fp32",
       [](const RunFacts& facts) -> std::string {
         const bool in_sixteen = facts.request != nullptr && facts.request->arithmetic == 16;
         return in_sixteen && facts.on_cpu ? "on a CPU, which computes in fp32" : "";
       }},
      {NoEffect::no_lora, "lora", "no LoRA",
       [](const RunFacts& facts) -> std::string {
         return facts.request != nullptr && facts.request->loras.empty() ? "without a LoRA" : "";
       }},
      {NoEffect::no_image, "image", "no image",
       [](const RunFacts& facts) -> std::string {
         return facts.request != nullptr && !facts.request->has_images() ? "without an image" : "";
       }},
      {NoEffect::no_sound, "model", "a model that makes no sound", no_sound},
      {NoEffect::not_encoded, "output", "an output that is not a .mp4, .mov, .mkv or .webm",
       [](const RunFacts& facts) {
         return facts.is_encoded ? "" : "on " + facts.output + ": it is for .mp4, .mov, .mkv and .webm";
       }},
      {NoEffect::no_frame_rate, "output", "an output that ends in .safetensors, without save_latents",
       [](const RunFacts& facts) {
         return facts.has_frame_rate ? "" : "on " + facts.output + ", which holds only frames";
       }},
      {NoEffect::random_seed, "seed", "a random seed, with which the same command makes another video",
       [](const RunFacts& facts) {
         return facts.has_random_seed
                    ? "with " + facts.settings->describe("seed") + ": the same command makes another video"
                    : "";
       }}};
  static const std::vector<Row> all = together(of_requests, rows_of_models());
  return all;
}

const Row& row_of(NoEffect cause) {
  return *std::ranges::find(rows(), cause, &Row::no_effect);
}

bool asks_for_something(const Settings& settings, const Option& option) {
  if (option.kind == ValueKind::flag) return settings.flag(option.key);
  const std::string value = settings.text(option.key, "");
  return !value.empty() && value != option.nothing;
}

/// Returns true if no warning is needed: the user did not give the option, or its cause comes from a stronger source,
/// which overrides the option on purpose. If the cause comes from an equal or weaker source, the user expects an
/// effect.
bool is_overridden(const Settings& settings, const Setting& no_effect, const NoEffectCause& cause) {
  const Setting* by = settings.find(cause.beside);
  return no_effect.source <= Source::profile || (by != nullptr && by->source > no_effect.source);
}

}  // namespace

bool is_exact(const Settings& settings, attention::Mode mode) {
  const Setting* given = settings.find("attention");
  return mode == attention::Mode::full && (given == nullptr || given->source != Source::profile);
}

std::string why_no_effect(NoEffect cause, const RunFacts& facts) {
  return row_of(cause).why(facts);
}

std::vector<NoEffectCause> no_effect_causes(std::span<const NoEffect> causes, const RunFacts& facts) {
  std::vector<NoEffectCause> all;
  for (const NoEffect cause : causes) {
    const Row& row = row_of(cause);
    if (std::string why = row.why(facts); !why.empty()) all.push_back({cause, row.beside, std::move(why)});
  }
  return all;
}

std::vector<std::string> no_effect_warnings(const Settings& settings, const std::vector<NoEffectCause>& causes) {
  std::vector<std::string> warnings;
  for (const Option& option : settings.options().all()) {
    const auto cause = std::ranges::find_if(
        causes, [&](const NoEffectCause& each) { return !each.why.empty() && has_no_effect(option, each.no_effect); });
    const Setting* setting = settings.find(option.key);
    if (cause == causes.end() || setting == nullptr || !asks_for_something(settings, option)) continue;
    if (!is_overridden(settings, *setting, *cause))
      warnings.push_back(settings.describe(option.key) + " has no effect " + cause->why);
  }
  return warnings;
}

std::set<std::string> options_without_effect(const OptionList& options, const std::vector<NoEffectCause>& causes) {
  std::set<std::string> keys;
  for (const Option& option : options.all())
    for (const NoEffectCause& cause : causes)
      if (!cause.why.empty() && has_no_effect(option, cause.no_effect)) keys.insert(option.key);
  return keys;
}

std::vector<std::pair<NoEffect, std::string>> causes_in_the_manual() {
  std::vector<std::pair<NoEffect, std::string>> all;
  for (const Row& row : rows()) all.emplace_back(row.no_effect, row.manual);
  return all;
}

}  // namespace sparsereel::models
