// Which of several files that fit is taken for a part, and which tokenizer. No torch.
#pragma once

#include <filesystem>
#include <vector>

#include "models/store/checkpoint/found_parts.h"

namespace sparsereel::models {

/// Of files for one role, which all fit. The transformer's own file comes first. A text encoder then is the smallest
/// that has as many bits a weight as the transformer, or else the largest; of other parts the most exact is taken; of
/// those alike the nearest one. `needs_tokenizer`: text encoders that have one come first.
FoundPart best_part(std::vector<FoundPart> parts, const FoundPart& transformer, bool needs_tokenizer);

/// Of folders with tokenizers those for a text encoder of these sizes; of equal ones the first. One that cannot be read
/// is left out.
std::vector<std::filesystem::path> fitting_tokenizers(const std::vector<std::filesystem::path>& folders,
                                                      const Sizes& encoder);

}  // namespace sparsereel::models
