// YAML files: a user's --config, and the configs/*.yaml of the models we know. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/request/model_config.h"
#include "models/request/spec.h"
#include "models/store/configs/published.h"

namespace sparsereel::models {

/// A --config file: a map of long option names (with _) to scalars. Throws Error naming file, line and column.
YamlOptions read_config_file(const std::filesystem::path& path);
/// The same of its text.
YamlOptions parse_config(const std::string& text, const std::filesystem::path& path);

/// Reads a models' YAML (keys match, architecture, defaults, presets) and returns its defaults if `match` fits the
/// model: class, layers, heads and what its family marks it by, such as patch_size_t (null where the config has none).
/// Throws Error naming file and key for anything else in it.
std::optional<ModelConfig> match_model_config(const std::filesystem::path& file, const ModelSpec& model);

/// A models' YAML as a model of its own: what --random-weights takes.
struct Architecture {
  ModelConfig config;
  std::map<std::string, std::string> match = {};  // values as ModelSpec::marks has them
  std::string transformer_class;                  // match.class
  nlohmann::json components;                      // the content of each component's config.json
  std::vector<Published> published = {};
};

/// Throws Error naming file and key; a file without `match.class` or `architecture` is one.
Architecture read_architecture(const std::filesystem::path& file);
/// The same of its text.
Architecture parse_architecture(const std::string& text, const std::filesystem::path& file);

/// Of each YAML of the folder, in the order of their names.
std::vector<Architecture> architectures_in(const std::filesystem::path& folder);

/// The one configs/*.yaml that fits; nothing where none does. Throws Error naming both where two do.
std::optional<ModelConfig> find_model_config(const std::filesystem::path& folder, const ModelSpec& model);

/// To warn of: that the folder holds no configs at all, where a model's defaults are the checkpoint's only. Empty:
/// there are some.
std::string missing_configs_warning(const std::filesystem::path& folder);

}  // namespace sparsereel::models
