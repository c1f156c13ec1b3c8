// Reads and writes tensors in the program's safetensors files: latents, denoising checkpoints, searches.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::app {

/// Returns a view of a contiguous CPU tensor for write_safetensors(). The tensor must outlive the view. Throws Error
/// for a dtype that these files do not hold.
models::TensorView view_of(const std::string& name, const at::Tensor& tensor);

/// Returns a copy of the entry, or an undefined tensor if its dtype is not one that view_of() accepts.
at::Tensor copy_of(const models::TensorFile& file, const models::TensorEntry& entry);

}  // namespace sparsereel::app
