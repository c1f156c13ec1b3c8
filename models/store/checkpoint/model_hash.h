// Identifies a model without reading all of its weights. No torch.
#pragma once

#include <string>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Returns a SHA-256 over every component's config and each weight file's size and header (names, dtypes, shapes and
/// offsets). A copy of the folder has the same hash; another architecture or another export has another hash. Folders
/// that differ only in the values of weights have the same hash, because comparing values would mean reading gigabytes.
/// Components that are single files contribute their weights_hash() and no file name.
std::string model_hash(const Checkpoint& checkpoint);

/// Returns a SHA-256 over the headers of files and the content of small tensors: tensors of one dimension or at most
/// 2^15 elements (biases, norms, modulation). Headers alone do not suffice, because all fine-tuned versions of a model
/// in one format have equal headers.
std::string weights_hash(const Component& component);

}  // namespace sparsereel::models
