// Chooses among several files that fit one part, and among tokenizers. No torch.
#pragma once

#include <filesystem>
#include <vector>

#include "models/store/checkpoint/found_parts.h"

namespace sparsereel::models {

/// Chooses one of `parts`, which all fit the same role. The transformer's own file comes first. Among text encoders the
/// smallest with about as many bits per weight as the transformer, or more, comes next, or else the largest. For other
/// parts the most exact comes next. The nearest file wins a tie. With `needs_tokenizer`, text encoders that have a
/// tokenizer come before others.
FoundPart best_part(std::vector<FoundPart> parts, const FoundPart& transformer, bool needs_tokenizer);

/// Returns the folders whose tokenizers fit a text encoder of these sizes. Of folders with equal content only the first
/// is returned. Tokenizers that cannot be read are left out.
std::vector<std::filesystem::path> fitting_tokenizers(const std::vector<std::filesystem::path>& folders,
                                                      const Sizes& encoder);

}  // namespace sparsereel::models
