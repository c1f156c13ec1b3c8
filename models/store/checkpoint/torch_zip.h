// Parser of torch.save() files (.pth, .pt, .bin): a zip of one pickle and the raw storages of tensors. No code in the
// pickle is run. No torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

/// Returns true if the file begins as a zip does.
bool is_zip(std::span<const std::byte> file);

/// Parses and checks a whole file. It must be a dictionary of tensors, or a dictionary that contains exactly one of
/// them ({"state_dict": ...}). A trainer's checkpoint may contain several: then it takes an average of the weights
/// ("ema_state_dict" and other names), or else the generator ("gen_model" in "state_dict", or "generator"). Tensors may
/// share a storage and need not be contiguous. Other values, and tensors of dtypes that weights do not have, are left
/// out. Throws Error naming `path` and the tensor; pickle.h lists what the pickle may name. The fuzz tests call this
/// function.
TensorList parse_torch_zip(std::span<const std::byte> file, const std::string& path);

}  // namespace sparsereel::models
