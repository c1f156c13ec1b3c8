// Parser of torch.save() files (.pth, .pt, .bin): a zip of one pickle and raw storages. Nothing in them is run. No
// torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

/// True if the file's first bytes are those of a zip.
bool is_zip(std::span<const std::byte> file);

/// Parses and checks a whole file: a dictionary of tensors, or one that contains exactly one such ({"state_dict":
/// ...}). In a trainer's checkpoint it takes "ema_state_dict" or another average of the weights, or else "gen_model" of
/// "state_dict" or "generator". Tensors may share a storage and need not be contiguous. Other values, and tensors of
/// dtypes that no weight has, are left out. Throws Error naming `path` and the tensor; pickle.h lists what the pickle
/// may name. This is the entry point of the fuzzer.
TensorList parse_torch_zip(std::span<const std::byte> file, const std::string& path);

}  // namespace sparsereel::models
