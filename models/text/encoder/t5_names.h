// Names of tensors in the encoders of T5, mT5 and UMT5, the sizes that they reveal, and where these encoders are
// published. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// Returns the names of tensors in the files of transformers (diffusers and ComfyUI use these too), of the video
/// model's authors, and in llama.cpp's GGUFs.
StoredNames t5_names();

/// Returns sizes from the config, or from tensors under transformers' names (for Part::sizes_by_config and
/// Part::sizes_by_tensors).
Sizes t5_sizes(const nlohmann::json& config, const std::string& file);
Sizes t5_sizes(const TensorTable& tensors);

/// Returns the encoders and their tokenizers as parts of a pipeline.
Part t5_part();
Part t5_tokenizer_part();
Part mt5_part();
Part mt5_tokenizer_part();
Part umt5_part();
Part umt5_tokenizer_part();

}  // namespace sparsereel::models
