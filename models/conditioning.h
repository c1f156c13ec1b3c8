// Prompts' tokens -> what the transformer attends to.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/spec.h"
#include "models/text/encoder/text_encoder.h"
#include "models/text/tokenizer.h"

namespace sparsereel::models {

/// prompts: token ids of one length L, padded. [B, L, C] in the encoder's dtype.
at::Tensor encode_prompts(const TextEncoder& encoder, const std::vector<TokenIds>& prompts, const PromptRules& rules);

}  // namespace sparsereel::models
