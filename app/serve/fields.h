// The fields of a request as clients see them: their list at /v1/options, and the names of LoRAs and profiles.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/options/options.h"

namespace sparsereel::app::serve {

/// The folders whose files requests may name. A path is empty if there is no such folder.
struct NamedFolders {
  std::filesystem::path loras, profiles;
};

/// Replaces the names of LoRAs and of a profile by their files. Throws Error naming the field if there is no such file.
std::map<std::string, std::string> with_files(std::map<std::string, std::string> values, const NamedFolders& folders);

/// Returns the answer of /v1/options: the fields that have an effect on the model's videos. `settings` are the server's
/// settings; `defaults` is the recipe of a video with these settings.
nlohmann::json list_fields(const Settings& settings, const nlohmann::json& defaults, const NamedFolders& folders,
                           const models::ModelSpec& spec);

}  // namespace sparsereel::app::serve
