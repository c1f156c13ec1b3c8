// Chooses among several files that fit one part, and among tokenizers. No torch.
#pragma once

#include <filesystem>
#include <vector>

#include "models/store/checkpoint/found_parts.h"

namespace sparsereel::models {

/// Chooses one of `parts`, which all fit one role. The transformer's own file comes first. The best text encoder is the
/// smallest with about as many bits per weight as the transformer, or else the largest. The best other part is the most
/// exact. The nearest file wins a tie. With `needs_tokenizer`, text encoders with a tokenizer come before others.
FoundPart best_part(std::vector<FoundPart> parts, const FoundPart& transformer, bool needs_tokenizer);

/// Returns folders whose tokenizers fit a text encoder of these sizes, one folder for each content. Unreadable folders
/// are left out.
std::vector<std::filesystem::path> fitting_tokenizers(const std::vector<std::filesystem::path>& folders,
                                                      const Sizes& encoder);

}  // namespace sparsereel::models
