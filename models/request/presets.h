// Chooses the preset of a model's file for a run, and gives the options that it sets. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/request/model_config.h"

namespace sparsereel::models {

/// Smallest number of steps for which a preset's usual cache and dense steps apply. Distilled models run fewer steps
/// and need all of them.
constexpr int64_t kLeastPresetSteps = 10;

struct PresetChoice {
  std::string name = {};   // name of the preset; empty if there is none
  bool few_steps = false;  // the options are those of the file's section `few_steps`
  /// true: the run has few steps, but the section `few_steps` lacks the preset, so the preset's options about steps,
  /// such as the cache, are left out.
  bool cut = false;
  YamlOptions options = {};  // the options that the preset sets
};

/// Chooses a preset. `given` holds the values of sources stronger than the model's file, by option name. If `given`
/// names a preset, it is chosen; "quality" is another name of near. If `given` names a recipe or a profile, there is no
/// preset, because recipes and profiles set the same options. Otherwise the preset is exact if `given` asks for
/// attention full, else balanced; there is none if the file lacks it. A run of fewer than kLeastPresetSteps takes the
/// preset's options from the section `few_steps`. `steps` is the checkpoint's default number of steps. Throws Error
/// (field preset) if the file lacks the named preset.
PresetChoice choose_preset(const ModelConfig& config, const std::map<std::string, std::string>& given, int64_t steps);

/// Removes the preset's options about steps, such as the cache, and keeps the options about the blocks that each step
/// computes.
void keep_blocks_alone(PresetChoice& preset);

/// Returns the file's defaults together with the preset's options, without the defaults that cannot be combined with
/// the preset's options.
YamlOptions defaults_of(const ModelConfig& config, const PresetChoice& preset);

}  // namespace sparsereel::models
