// Parser of torch.save() files (.pth, .pt, .bin): a zip of one pickle and raw storages. Nothing in them is run. No
// torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

bool is_zip(std::span<const std::byte> file);

/// Parses and checks a whole file: a dictionary of tensors, or a dictionary that contains a single one of these
/// ({"state_dict": ...}). In a trainer's checkpoint it takes an average of the weights ("ema_state_dict"), or else
/// "gen_model" of "state_dict". Tensors may share a storage and need not be contiguous. Other values, and tensors of
/// dtypes that no weight has, are left out. Throws Error naming `path` and the tensor; pickle.h lists what the pickle
/// may name. The fuzzer calls it.
TensorList parse_torch_zip(std::span<const std::byte> file, const std::string& path);

}  // namespace sparsereel::models
