// Reads the recipe in a video's file back into option values, for `generate --from`.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/options/option_table.h"

namespace sparsereel::app {

/// The remedy of the errors about a file that carries no recipe.
inline constexpr const char* kNoRecipeRemedy =
    "name a video that this program made without --no-metadata, or a recipe or report as .json";

/// Returns true if --from names a video that was made with a profile of `tune`.
bool recipe_has_profile(const Settings& settings);

/// Adds the recipe of a video to the settings, as Source::recipe. A recipe holds only the model's name. If no stronger
/// source names a model or a transformer's file, this name must be that of the tiny model or of a file in configs/, and
/// the function sets that model. Throws Error naming the file if it carries no recipe, or if the recipe has a field
/// that this version does not know. Also throws if the video was made with a model or another file that no option
/// names.
void add_recipe(Settings& settings, const std::filesystem::path& video);

/// Returns warnings if this run differs from the video of --from. Compares the hashes of model, profile, image, LoRA
/// and initial latents, and the program's version. `recipe` is the recipe of this run. Returns no warnings without
/// --from.
std::vector<std::string> recipe_mismatches(const Settings& settings, const nlohmann::json& recipe);

}  // namespace sparsereel::app
