// What the tensors of CLIP's vision tower tell of it, and where it is published. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/checkpoint/family.h"

namespace sparsereel::models {

/// Part::sizes_by_config and sizes_by_tensors; tensors with the prefix "vision_model." or without.
Sizes clip_vision_sizes(const nlohmann::json& config, const std::string& file);
Sizes clip_vision_sizes(const TensorTable& tensors);

/// The encoder and its preprocessor_config.json as parts of a pipeline, which may have neither.
Part clip_vision_part();
Part clip_processor_part();

}  // namespace sparsereel::models
