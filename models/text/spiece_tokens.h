// Tokens of a SentencePiece unigram model and the special tokens of its folder.
#pragma once

#include <memory>
#include <string>

#include "models/text/spiece.h"
#include "models/text/token_model.h"
#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

/// Makes the token model of parsed files. Every text ends with eos_token. Throws Error naming `path` if SentencePiece
/// refuses the model, or eos_token or pad_token has no id.
std::unique_ptr<TokenModel> make_spiece_tokens(const SpieceModel& model, const TokenizerConfig& config,
                                               const std::string& path);

}  // namespace sparsereel::models
