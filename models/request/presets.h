// Chooses the preset of a model's file for a run, and gives the options that it sets. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/request/model_config.h"

namespace sparsereel::models {

/// Smallest number of steps for which a preset's usual cache and dense steps apply: distilled models have no steps to
/// spare.
constexpr int64_t kLeastPresetSteps = 10;

struct PresetChoice {
  std::string name = {};     // name of the preset; empty if there is none
  bool few_steps = false;    // the options are those of the file's section `few_steps`
  bool cut = false;          // there are few steps and no such options, so the cache and the dense steps are left out
  YamlOptions options = {};  // the options that the preset sets
};

/// Chooses a preset. `given` holds the values of sources stronger than the model's file, by option name. If they name a
/// preset, it is chosen; "quality" is another name of near. If they name a recipe or a profile, there is no preset,
/// because recipes and profiles set the same options. Otherwise the preset is exact with attention full, else balanced,
/// if the file has it. A run of fewer than kLeastPresetSteps takes the preset's options from the section `few_steps`.
/// `steps` is the checkpoint's default number of steps. Throws Error (field preset) if the file lacks the named preset.
PresetChoice choose_preset(const ModelConfig& config, const std::map<std::string, std::string>& given, int64_t steps);

/// Removes the preset's options about steps and keeps those about the blocks that each step computes.
void keep_blocks_alone(PresetChoice& preset);

/// Returns the file's defaults together with the preset's options, without defaults that the preset excludes.
YamlOptions defaults_of(const ModelConfig& config, const PresetChoice& preset);

}  // namespace sparsereel::models
