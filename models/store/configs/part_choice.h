// Chooses among several files that fit one part, and among tokenizers. No torch.
#pragma once

#include <filesystem>
#include <vector>

#include "models/store/checkpoint/found_parts.h"

namespace sparsereel::models {

/// Chooses one of `parts`, which all fit one role. Rules, in this order: a part in the transformer's own file is best.
/// With `needs_tokenizer`, a text encoder with a tokenizer is better than one without. Of the text encoders that have
/// at least about as many bits per weight as the transformer, the one with the fewest bits is best; if there are none,
/// the text encoder with the most bits. For other roles, the part with the most bits per weight is best. Of equally
/// good files, the one in the folder nearest to the transformer's is taken.
FoundPart best_part(std::vector<FoundPart> parts, const FoundPart& transformer, bool needs_tokenizer);

/// Returns the folders whose tokenizers fit a text encoder of these sizes. Of folders with equal tokenizers, it returns
/// only one. Unreadable folders are left out. A single folder is returned unchecked.
std::vector<std::filesystem::path> fitting_tokenizers(const std::vector<std::filesystem::path>& folders,
                                                      const Sizes& encoder);

}  // namespace sparsereel::models
