// Which model this is, without reading its weights. No torch.
#pragma once

#include <string>

#include "models/files/sha256.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// SHA-256 over the content of every component's config, and each weight file's size and header (names, dtypes, shapes
/// and offsets of its tensors): a copy of the folder has the same one, another architecture or export has not. Weights
/// of equal shapes are not told apart: gigabytes would have to be read for that. Of files by themselves, whatever their
/// names, weights_hash() (part_files.h).
std::string model_hash(const Checkpoint& checkpoint);

/// A file's size and header.
void add_header(Sha256& hash, const TensorFile& file);

}  // namespace sparsereel::models
