// Adds the effects of profiles to settings and requests.
#include "models/request/resolve.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>

namespace sparsereel::models {
namespace {

/// Returns true if a source stronger than the profile says how many blocks all heads compute.
bool chooses_blocks(const Settings& settings) {
  return std::ranges::any_of(kSelectionNames, [&](const char* key) {
    const Setting* setting = settings.find(key);
    return setting != nullptr && setting->source > Source::profile;
  });
}

/// Returns the profile of this file. Settings that have read it keep it.
TunedProfile profile_in(const Settings& settings, const std::string& file) {
  const std::shared_ptr<const TunedProfile>& kept = settings.profile();
  return kept && kept->file == file ? *kept : read_profile(file);
}

}  // namespace

void add_profile(Settings& settings) {
  settings.remove(Source::profile);
  const auto file = settings.text("profile");
  if (!file || settings.text("attention") == "full") return;
  const auto profile = std::make_shared<const TunedProfile>(profile_in(settings, *file));
  settings.keep_profile(profile);
  settings.add(Source::profile, options_of(*profile), *file);
}

Request read_request(const Settings& settings, const std::function<bool(const std::string& key)>& takes) {
  std::map<std::string, std::string> values;
  for (const Field& field : fields())
    if (const auto value = settings.text(field.name); value && (!takes || takes(field.name)))
      values[field.name] = *value;
  if (is_random_seed(settings.text("seed", ""))) values.erase("seed");
  return read_request(values);
}

std::optional<TunedProfile> apply_profile(const Settings& settings, Request& request) {
  const auto file = settings.text("profile");
  if (!file) return std::nullopt;
  TunedProfile profile = profile_in(settings, *file);
  if (chooses_blocks(settings) || settings.text("attention") == "quantized") profile.heads = {};
  if (profile.by_head()) use_heads(profile, request);
  return profile;
}

bool is_exact(const Settings& settings, attention::Mode mode) {
  const Setting* given = settings.find("attention");
  return mode == attention::Mode::full && (given == nullptr || given->source != Source::profile);
}

}  // namespace sparsereel::models
