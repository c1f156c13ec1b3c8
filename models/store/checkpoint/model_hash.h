// Which model this is, without reading its weights. No torch.
#pragma once

#include <string>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// SHA-256 over the content of every component's config, and each weight file's size and header (names, dtypes, shapes
/// and offsets of its tensors): a copy of the folder has the same one, another architecture or export has not. Weights
/// of equal shapes are not told apart: gigabytes would have to be read for that. Of files by themselves, whatever their
/// names, weights_hash().
std::string model_hash(const Checkpoint& checkpoint);

/// SHA-256 over names, types, shapes and places of all tensors of its files, and over the content of the small ones: of
/// one dimension, or of at most 2^15 elements (biases, norms, modulation). Files of one format have equal headers.
std::string weights_hash(const Component& component);

}  // namespace sparsereel::models
