// The defaults and presets that a matching file of configs/ gives a model, as options. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "models/request/place.h"

namespace sparsereel::models {

/// Options as a YAML file gives them, with their places in it.
struct YamlOptions {
  std::map<std::string, std::string> values;
  Places places;
};

/// A file of configs/ that describes a published checkpoint.
struct ModelConfig {
  std::filesystem::path file;
  std::map<std::string, std::string> defaults = {};
  Places places = {};                               // places of the defaults in the file
  std::map<std::string, YamlOptions> presets = {};  // options that each preset sets on top of the defaults
};

}  // namespace sparsereel::models
