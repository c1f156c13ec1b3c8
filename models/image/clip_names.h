// What the tensors of CLIP's vision tower tell of it, and where it is published. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// What transformers calls the tower's layers, and what a video model's authors do: "visual.transformer.0.attn.to_qkv",
/// where q, k and v are one matrix, which is clip_fused_layer() here.
StoredNames clip_vision_names();
/// Of a layer's attention, below which q, k and v lie in one matrix: "encoder.layers.0.self_attn.qkv".
std::string clip_fused_layer(const std::string& attention);

/// Part::sizes_by_config and sizes_by_tensors; tensors with the prefix "vision_model." or without.
Sizes clip_vision_sizes(const nlohmann::json& config, const std::string& file);
Sizes clip_vision_sizes(const TensorTable& tensors);

/// The encoder and its preprocessor_config.json as parts of a pipeline, which may have neither.
Part clip_vision_part();
Part clip_processor_part();

}  // namespace sparsereel::models
