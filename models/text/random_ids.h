// Token ids for a text encoder that has no tokenizer, because its weights are random.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace sparsereel::models {

/// int64 [length] in [0, vocab_size), evenly drawn from a generator that the text seeds: other texts give other ids.
at::Tensor random_token_ids(const std::string& text, int64_t length, int64_t vocab_size);

}  // namespace sparsereel::models
