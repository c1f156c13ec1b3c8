// tokenizer.json, which stands alone where transformers 5 saved a tokenizer: the model of spiece.model in other
// clothes.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/text/spiece.h"
#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

/// A unigram model, with its added tokens (sentinels among them) put before those of `config`. Types of pieces are not
/// in the file: the unknown one is told by its name (transformers writes id 2 for UMT5 too), byte fallback by the
/// bytes' pieces. Throws Error naming `path` and the field where something is damaged or not supported.
SpieceModel parse_tokenizer_json(const nlohmann::json& file, TokenizerConfig& config, const std::string& path);
/// Throws Error naming the file when it cannot be read or parsed.
SpieceModel read_tokenizer_json(const std::filesystem::path& path, TokenizerConfig& config);

}  // namespace sparsereel::models
