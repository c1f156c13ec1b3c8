// Puts resolved presets and profiles into words.
#include "app/jobs/preset_lines.h"

#include <algorithm>
#include <set>

#include "app/counted.h"
#include "hilbert/exact_text.h"

namespace sparsereel::app {
namespace {

using attention::Mode;

/// Returns ", with --topk 0.5 and --cache 0": options from stronger sources that differ from the preset or profile.
std::string given_beside(const VideoTask& video, Source least) {
  const Settings& settings = video.settings;
  const std::set<std::string> no_effect = models::options_without_effect(settings.options(), video.options.no_effect);
  const auto& own = settings.preset().options.values;
  std::string text;
  for (const models::Option& option : settings.options().all()) {
    const Setting* setting = settings.find(option.key);
    if (!is_of_a_preset(option) || setting == nullptr || setting->source < least) continue;
    const auto same = own.find(option.key);
    if (no_effect.contains(option.key) || (same != own.end() && same->second == setting->value)) continue;
    text += (text.empty() ? ", with " : " and ") + settings.describe(option.key);
  }
  return text;
}

/// Returns how blocks are chosen: "topk 0.3".
std::string selection_text(const VideoTask& video) {
  const auto& profile = video.options.profile;
  if (profile && profile->by_head()) return "blocks chosen for each head";
  const attention::HeadPolicy& head = video.plan.attention_policy.defaults;
  const attention::SelectionField& field = attention::field_of(head.selection);
  return std::string(field.words) + " " + exact_text(head.*field.value);
}

std::string blocks_text(const VideoTask& video) {
  const models::Plan& plan = video.plan;
  if (plan.attention_mode == Mode::full) return "full attention";
  const int64_t steps = plan.num_inference_steps, dense = std::min(plan.attention_policy.dense_steps, steps),
                exact = std::min(plan.exact_steps, steps);
  std::string text = exact == 0 ? "" : std::to_string(exact) + " of " + counted(steps, "step") + " in 16 bits, then ";
  if (plan.attention_mode == Mode::quantized) return text + "every block, in 8 bits";
  if (dense > exact)
    text += std::to_string(dense - exact) + " of " + counted(steps, "step") + " with every block, then ";
  return text + selection_text(video);
}

}  // namespace

std::string preset_name(const VideoTask& video) {
  const std::string& preset = video.settings.preset().name;
  if (const auto& profile = video.options.profile)
    return "profile " + profile->file.filename().string() + given_beside(video, Source::config_file);
  return preset.empty() ? preset : "preset " + preset + given_beside(video, Source::recipe);
}

std::string chosen_text(const VideoTask& video) {
  std::string text = preset_name(video);
  if (text.empty()) return {};
  const models::PresetChoice& preset = video.settings.preset();
  if (preset.few_steps) text += " for fewer than " + std::to_string(models::kLeastPresetSteps) + " steps";
  if (preset.cut)
    text += ", whose cache and dense steps are for " + std::to_string(models::kLeastPresetSteps) + " steps or more";
  return text + ": " + blocks_text(video);
}

std::string preset_line(const VideoTask& video, int64_t fewest, int64_t most) {
  std::string text = chosen_text(video);
  if (text.empty()) return {};
  const models::Plan& plan = video.plan;
  const std::string steps = counted(plan.num_inference_steps, "step");
  text += "; ";
  if (plan.cache.on())
    text += models::name(plan.cache) + " computed " + std::to_string(fewest) +
            (most > fewest ? " to " + std::to_string(most) : "") + " of " + steps;
  else
    text += "every step computed";
  const bool exact = plan.attention_mode == Mode::full && !plan.cache.on();
  return text + (exact ? "" : "; --preset exact for full attention");
}

void PresetLines::add(const VideoTask& video, int64_t computed_steps) {
  const std::string line = preset_line(video, 0, 0);
  if (line.empty()) return;
  auto same =
      std::ranges::find_if(settings_, [&](const Setting& each) { return preset_line(*each.video, 0, 0) == line; });
  if (same == settings_.end())
    same = settings_.insert(same, {.video = &video, .fewest = computed_steps, .most = computed_steps});
  ++same->videos;
  same->fewest = std::min(same->fewest, computed_steps);
  same->most = std::max(same->most, computed_steps);
}

std::vector<std::string> PresetLines::lines() const {
  std::vector<std::string> lines;
  for (const Setting& each : settings_)
    lines.push_back((settings_.size() > 1 ? counted(each.videos, "video") + ": " : "") +
                    preset_line(*each.video, each.fewest, each.most));
  return lines;
}

std::string PresetLines::common_name() const {
  std::set<std::string> names;
  for (const Setting& each : settings_) names.insert(preset_name(*each.video));
  return names.size() == 1 ? *names.begin() : "";
}

}  // namespace sparsereel::app
