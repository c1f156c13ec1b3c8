// Reads the files of a byte-level BPE tokenizer: vocab.json and merges.txt, or a tokenizer.json.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/text/byte_pairs.h"
#include "models/text/token_model.h"
#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

/// Parses the content of a vocab.json and a merges.txt, whose first line may be a comment with the version. Throws
/// Error naming `vocab_path`, or `merges_path` and the line, if something is damaged.
BytePairModel parse_byte_pairs(const nlohmann::json& vocabulary, std::string_view merges, const std::string& vocab_path,
                               const std::string& merges_path);

/// Parses a tokenizer.json whose model is BPE. Puts its added tokens before the tokens of `config`. Throws Error naming
/// `path` and the field if something is damaged, or if the file asks for other steps than normal form C, a split by
/// kWordPattern, and bytes.
BytePairModel parse_byte_pair_json(const nlohmann::json& file, TokenizerConfig& config, const std::string& path);

/// Returns true for the content of a tokenizer.json whose model is BPE.
bool is_byte_pair_json(const nlohmann::json& file);
/// Returns true for the names of vocab.json and merges.txt.
bool is_byte_pair_file(const std::filesystem::path& file);

/// Makes the token model of a parsed tokenizer.json and of the added tokens in the files beside it
/// (tokenizer_config.h). Throws Error naming the file that is damaged or not supported.
std::unique_ptr<TokenModel> byte_pairs_of_json(const nlohmann::json& content, const std::filesystem::path& file);
/// Reads the vocab.json and merges.txt of a folder, and the added tokens in the files beside them. Throws Error naming
/// the file that is missing, damaged or not supported.
std::unique_ptr<TokenModel> read_byte_pairs(const std::filesystem::path& folder);

}  // namespace sparsereel::models
