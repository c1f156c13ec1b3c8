// Which preset of a model's file holds in a run, and what it gives there. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/request/model_config.h"

namespace sparsereel::models {

/// Steps from which on a preset's cache and dense steps count: a distilled model's few steps have none to spare.
constexpr int64_t kLeastPresetSteps = 10;

/// The preset of a model's file that holds.
struct PresetChoice {
  std::string name = {};     // as the file has it; empty: none
  bool few_steps = false;    // too few for its cache and dense steps, which are left out
  YamlOptions options = {};  // what it gives
};

/// By what stronger sources than the file give, values by option names: the preset that they name, where "quality" is
/// another name of near; none beside a recipe or a profile, which have made its choices; exact beside attention full;
/// else balanced, as far as the file has them. `steps`: the checkpoint's own, where neither they nor the file say.
/// Throws Error (field preset) where one is named that the file has not.
PresetChoice choose_preset(const ModelConfig& config, const std::map<std::string, std::string>& given, int64_t steps);

/// What the preset says of the steps, not of the blocks that each computes, goes.
void keep_blocks_alone(PresetChoice& preset);

/// The file's defaults, but for what the preset excludes, with what it gives on top.
YamlOptions defaults_of(const ModelConfig& config, const PresetChoice& preset);

}  // namespace sparsereel::models
