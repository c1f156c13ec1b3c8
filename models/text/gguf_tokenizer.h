// The tokenizer in the key-values of a GGUF, as llama.cpp writes it: the content of spiece.model in another format.
#pragma once

#include <map>
#include <string>

#include "models/text/spiece.h"

namespace sparsereel::models {

/// Parses a tokenizer. `metadata` is the metadata of a TensorList, with tokenizer.ggml.{tokens, scores, token_type,
/// precompiled_charsmap, add_space_prefix, remove_extra_whitespaces}. GGUFs pad vocabularies with pieces that occur in
/// no text, and store user-defined pieces as ordinary pieces. Throws Error naming `path` and the key if a key is
/// missing or damaged.
SpieceModel parse_gguf_tokenizer(const std::map<std::string, std::string>& metadata, const std::string& path);

}  // namespace sparsereel::models
