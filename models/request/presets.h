// Chooses the preset of a model's file for a run, and gives the options that it sets. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/request/model_config.h"

namespace sparsereel::models {

/// Smallest number of steps for which a preset's cache and dense steps apply: distilled models have no steps to spare.
constexpr int64_t kLeastPresetSteps = 10;

struct PresetChoice {
  std::string name = {};     // too few steps for the preset's cache and dense steps, which are left out
  bool few_steps = false;    // too few steps for its cache and dense steps, which are left out
  YamlOptions options = {};  // the options that the preset sets
};

/// Chooses a preset from `given`, the values of sources stronger than the file, by option name. A preset that they name
/// wins; "quality" is another name of near. If they name a recipe or a profile, there is no preset, because these hold
/// the same choices. Otherwise the preset is exact with attention full, else balanced, if the file has it. `steps` is
/// the checkpoint's default number of steps. Throws Error (field preset) if the file lacks the named preset.
PresetChoice choose_preset(const ModelConfig& config, const std::map<std::string, std::string>& given, int64_t steps);

/// Removes the preset's options about steps and keeps those about the blocks that each step computes.
void keep_blocks_alone(PresetChoice& preset);

/// Returns the file's defaults together with the preset's options, without defaults that the preset excludes.
YamlOptions defaults_of(const ModelConfig& config, const PresetChoice& preset);

}  // namespace sparsereel::models
