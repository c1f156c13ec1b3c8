// The tokenizer in the keys of a GGUF, as llama.cpp writes it: the model of spiece.model in other clothes.
#pragma once

#include <map>
#include <string>

#include "models/text/spiece.h"

namespace sparsereel::models {

/// metadata: a TensorList's, with tokenizer.ggml.{tokens, scores, token_type, precompiled_charsmap, add_space_prefix,
/// remove_extra_whitespaces}. Vocabularies are filled up there with pieces that no text has. Pieces that the user
/// defined are ordinary ones there. Throws Error naming `path` and the key where one is missing or damaged.
SpieceModel parse_gguf_tokenizer(const std::map<std::string, std::string>& metadata, const std::string& path);

}  // namespace sparsereel::models
