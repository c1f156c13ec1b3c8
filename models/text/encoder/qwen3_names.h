// Names of tensors in Qwen3's language models, and the sizes that they reveal. No torch.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// The prefix of the names of the language model's tensors in transformers' Qwen3-VL.
inline constexpr const char* kQwen3Model = "model.language_model.";

/// Returns the names of tensors in transformers' Qwen3-VL, in a file of the language model alone (ComfyUI uses these
/// too, with "visual." for images), and in llama.cpp's GGUFs.
StoredNames qwen3_names();

/// Returns sizes from the config, or from tensors under transformers' names (for Part::sizes_by_config and
/// Part::sizes_by_tensors). The number of layers is left out: files may lack the last ones.
Sizes qwen3_sizes(const nlohmann::json& config, const std::string& file);
Sizes qwen3_sizes(const TensorTable& tensors);

/// Returns the encoder of Qwen3-VL and its tokenizer as parts of a pipeline. `published` names files that hold the
/// encoder, `repository` the repository with the tokenizer.
Part qwen3_vl_part(const std::string& published);
Part qwen3_tokenizer_part(const std::string& repository);

/// Returns the part that says how Qwen3-VL cuts images into patches. It is optional, because its values have defaults.
/// Its class joins the image processor with a tokenizer. It may be any class, because the config names the image
/// processor (parse_patch_config()).
Part qwen3_processor_part();

}  // namespace sparsereel::models
