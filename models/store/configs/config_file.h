// Reads YAML files: a user's --config, and the configs/*.yaml of the known models. No torch.
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

/// Reads a --config file: a map of long option names (with _) to scalars. Throws Error naming file, line and column.
YamlOptions read_config_file(const std::filesystem::path& path);
/// Parses the text of a --config file like read_config_file().
YamlOptions parse_config(const std::string& text, const std::filesystem::path& path);

/// Returns the defaults in a model's YAML; nullopt if its key `match` does not fit the model. `match` holds class,
/// layers, heads and the fields of ModelSpec::fingerprint, such as patch_size_t (null if the config has none). The
/// other keys are architecture, defaults, presets, few_steps, distilled and published. Throws Error naming file and key
/// if there is any other key.
std::optional<ModelConfig> match_model_config(const std::filesystem::path& file, const ModelSpec& model);

/// A model's YAML as a complete description of the model, which --random-weights needs.
struct Architecture {
  ModelConfig config;
  std::map<std::string, std::string> match = {};  // values in the form of ModelSpec::fingerprint
  std::string transformer_class;                  // match.class
  nlohmann::json components;                      // each component's config.json, by role
  std::vector<Published> published = {};
};

/// Reads a model's YAML as an architecture. Throws Error naming file and key if a key is wrong, or if `match.class` or
/// `architecture` is missing.
Architecture read_architecture(const std::filesystem::path& file);
/// Parses the text of a model's YAML like read_architecture().
Architecture parse_architecture(const std::string& text, const std::filesystem::path& file);

/// Reads all YAML files of a folder, in the order of their names.
std::vector<Architecture> architectures_in(const std::filesystem::path& folder);

/// Returns the config of the only YAML in `folder` that fits the model; nullopt if none fits. If two fit, throws Error
/// naming both.
std::optional<ModelConfig> find_model_config(const std::filesystem::path& folder, const ModelSpec& model);

/// Returns a warning if the folder holds no configs: a model's defaults then come from the checkpoint alone. Returns an
/// empty string if it holds some.
std::string missing_configs_warning(const std::filesystem::path& folder);

}  // namespace sparsereel::models
