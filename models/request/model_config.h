// The defaults and presets of a model, as options. They come from the file of configs/ that matches the model. No
// torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/request/place.h"

namespace sparsereel::models {

/// Options that a YAML file gives, and the places in the file where it gives them.
struct YamlOptions {
  std::map<std::string, std::string> values;
  Places places;
};

/// The settings of a model that was distilled to a few steps: a row of the section `distilled`.
struct Distilled {
  std::string name;                // publishers' name of the distillation method: "lightx2v"
  int64_t steps = 0;               // number of steps
  std::vector<std::string> loras;  // files of the LoRAs, one for each transformer; empty for a whole model
  std::string repository;          // repository in which these LoRAs, or the whole model, are published
  std::vector<std::string> words;  // in lower case; the name of a file distilled in this way contains one of them
  YamlOptions options;             // options for these steps: sampler, noise levels, shift, guidance
};

/// A file of configs/ that describes a published checkpoint.
struct ModelConfig {
  std::filesystem::path file;
  std::map<std::string, std::string> defaults = {};
  Places places = {};                               // places of the defaults in the file
  std::map<std::string, YamlOptions> presets = {};  // options that each preset sets on top of the defaults
  /// Options of each preset for runs of few steps, in place of `presets`.
  std::map<std::string, YamlOptions> few_steps = {};
  std::vector<Distilled> distilled = {};  // of several rows with the same number of steps, the first is the usual one
  std::vector<std::filesystem::path> loras = {};  // LoRAs that the model was opened with, if settings do not name them
};

}  // namespace sparsereel::models
