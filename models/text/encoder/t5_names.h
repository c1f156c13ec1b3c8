// What programs call the tensors of T5's, mT5's and UMT5's encoders, what these tell of a model, and where both are
// published. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// transformers' names, which diffusers and ComfyUI keep; those of the video model's authors; and llama.cpp's, of a
/// GGUF.
StoredNames t5_names();

/// Of the config, and of the tensors under transformers' names (Part::sizes_by_config).
Sizes t5_sizes(const nlohmann::json& config, const std::string& file);
Sizes t5_sizes(const TensorTable& tensors);

/// The encoders as parts of a pipeline, and their tokenizers.
Part t5_part();
Part t5_tokenizer_part();
Part mt5_part();
Part mt5_tokenizer_part();
Part umt5_part();
Part umt5_tokenizer_part();

}  // namespace sparsereel::models
