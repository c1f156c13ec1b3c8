// Converts tensors to and from the entries of the program's safetensors files, such as latents, denoising checkpoints
// and the progress of `tune`.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::app {

/// Returns a view of a contiguous CPU tensor for write_safetensors(). The tensor must outlive the view. Throws Error
/// for a dtype that these files cannot hold.
models::TensorView view_of(const std::string& name, const at::Tensor& tensor);

/// Returns the entry as a new contiguous CPU tensor, or an undefined tensor if view_of() does not accept its dtype.
at::Tensor copy_of(const models::TensorFile& file, const models::TensorEntry& entry);

}  // namespace sparsereel::app
