// Names and sizes of the tensors of CLIP's vision transformer, and where it is published. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// Maps transformers' names of the vision transformer's layers to the names in files of a video model's authors
/// ("visual.transformer.0.attn.to_qkv"). In these files q, k and v are one matrix, for which transformers has no name;
/// here it gets the name clip_fused_layer().
StoredNames clip_vision_names();
/// Returns the name of the matrix of q, k and v in a layer's attention: "encoder.layers.0.self_attn.qkv".
std::string clip_fused_layer(const std::string& attention);

/// Returns the encoder's sizes, from its config or from the shapes of its tensors, for Part::sizes_by_config and
/// Part::sizes_by_tensors. Tensors may have the prefix "vision_model.".
Sizes clip_vision_sizes(const nlohmann::json& config, const std::string& file);
Sizes clip_vision_sizes(const TensorTable& tensors);

/// The next two functions return the encoder and its preprocessor_config.json as optional parts of a pipeline.
Part clip_vision_part();
Part clip_processor_part();

}  // namespace sparsereel::models
