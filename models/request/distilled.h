// Settings for models that were distilled to a few steps, from the section `distilled` of a model's file. No torch.
#pragma once

#include <string>

#include "models/request/model_config.h"

namespace sparsereel::models {

class Settings;

/// Returns the options that `distilled` sets, chosen by the number of steps and by the names of the run's weights;
/// nothing if `distilled` is not given. Throws Error (field distilled) if the model's file has no such row, or if the
/// row needs a LoRA and none is given.
YamlOptions distilled_options(const ModelConfig& config, const Settings& settings);

/// Returns a warning if weights of the run are named like a distilled model's, but neither `distilled` nor other
/// settings of steps are given. Otherwise returns an empty string.
std::string distilled_warning(const ModelConfig& config, const Settings& settings);

/// Returns the row whose words occur in the name of these weights or of their folders; null if there is none.
const Distilled* distilled_as(const ModelConfig& config, const std::filesystem::path& weights);

}  // namespace sparsereel::models
