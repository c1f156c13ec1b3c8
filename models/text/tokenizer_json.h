// Reads tokenizer.json, the only file in folders that transformers 5 saved. For T5 it holds the content of spiece.model
// in another format; byte_pair_files.h parses the tokenizer.json of other models.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/text/spiece.h"
#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

/// Parses a unigram model. Puts its added tokens (including sentinels) before the tokens of `config`. The file lacks
/// the types of pieces: the unknown piece is recognized by its name (transformers writes id 2 even for UMT5), and byte
/// fallback by the pieces of bytes. Throws Error naming `path` and the field if something is damaged or not supported.
SpieceModel parse_tokenizer_json(const nlohmann::json& file, TokenizerConfig& config, const std::string& path);
/// Returns the content of a tokenizer.json of any model. Throws Error naming the file if it cannot be read or is no
/// JSON.
nlohmann::json read_tokenizer_json(const std::filesystem::path& path);

}  // namespace sparsereel::models
