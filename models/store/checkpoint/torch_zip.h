// Files of torch.save() (.pth, .pt, .bin): a zip of one pickle and raw storages. Nothing in them is run. No torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

/// True where the file's first bytes say that it is a zip.
bool is_zip(std::span<const std::byte> file);

/// Parses and checks a whole file: a dictionary of tensors, or one dictionary that holds such a one
/// ({"state_dict": ...}); of a trainer's checkpoint the entry "ema_state_dict", else "gen_model" of "state_dict".
/// Tensors may share a storage and need not be contiguous. Other values, and tensors of types that no weight has, are
/// left out. Throws Error naming `path` and the tensor; pickle.h says what the pickle may name. The fuzz entry.
TensorList parse_torch_zip(std::span<const std::byte> file, const std::string& path);

}  // namespace sparsereel::models
