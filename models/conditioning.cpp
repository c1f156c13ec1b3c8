// With padding in one batch, without it prompt by prompt; see conditioning.h.
#include "models/conditioning.h"

#include <ATen/ATen.h>

namespace sparsereel::models {
namespace {

/// int64 [1, count]: the first ones.
at::Tensor ids_of(const TokenIds& prompt, int64_t count) {
  return at::tensor(prompt.ids, at::kLong).narrow(0, 0, count).unsqueeze(0);
}

}  // namespace

at::Tensor encode_prompts(const TextEncoder& encoder, const std::vector<TokenIds>& prompts, const PromptRules& rules) {
  std::vector<at::Tensor> rows;
  for (const TokenIds& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    if (rules.encodes_padding) {
      rows.push_back(ids_of(prompt, length));
    } else {
      const at::Tensor encoded = encoder.forward(ids_of(prompt, prompt.token_count));
      rows.push_back(at::constant_pad_nd(encoded, {0, 0, 0, length - prompt.token_count}));
    }
  }
  return rules.encodes_padding ? encoder.forward(at::cat(rows)) : at::cat(rows);
}

}  // namespace sparsereel::models
