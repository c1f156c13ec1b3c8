// Which model this is, without reading its weights. No torch.
#pragma once

#include <string>

#include "models/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// SHA-256 over the content of every component's config, and each weight file's size and header (names, dtypes, shapes
/// and offsets of its tensors): a copy of the folder has the same one, another architecture or export has not. Weights
/// of equal shapes are not told apart: gigabytes would have to be read for that.
std::string model_hash(const Checkpoint& checkpoint);

}  // namespace sparsereel::models
