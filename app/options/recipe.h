// Recipes read back: the settings that a video of ours carries become option values again (`generate --from`).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/options/settings.h"

namespace sparsereel::app {

/// Whether --from names a video that was made with a policy for each head.
bool recipe_has_profile(const Settings& settings);

/// Adds what the recipe of a video says as Source::recipe. The model is known by its name only: where no stronger
/// source names one, it is the tiny model or a file of configs/. Throws Error naming the file: it carries no recipe,
/// the recipe has a field that this version does not know, or the model or the latents it began with have to be named.
void add_recipe(Settings& settings, const std::filesystem::path& video);

/// Warnings: the model, profile or latents of this run, as `recipe` has their hashes, are not those of the video that
/// --from names, or another version made it. Nothing where there is no --from.
std::vector<std::string> recipe_mismatches(const Settings& settings, const nlohmann::json& recipe);

}  // namespace sparsereel::app
