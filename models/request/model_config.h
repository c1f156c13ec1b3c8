// What a file of configs/ gives a model that it fits: defaults and presets, as options. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "models/request/place.h"

namespace sparsereel::models {

/// Options as a YAML file gives them.
struct YamlOptions {
  std::map<std::string, std::string> values;
  Places places;
};

/// A file of configs/ that describes a published checkpoint.
struct ModelConfig {
  std::filesystem::path file;
  std::map<std::string, std::string> defaults = {};
  Places places = {};                               // of the defaults
  std::map<std::string, YamlOptions> presets = {};  // by name: what each gives in place of defaults, or beside them
};

}  // namespace sparsereel::models
