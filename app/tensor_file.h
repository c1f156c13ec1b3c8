// Tensors in the safetensors files of this program: latents, denoising checkpoints, searches.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::app {

/// What write_safetensors() takes: a contiguous CPU tensor, which must outlive the view. Throws Error for a dtype that
/// these files do not hold.
models::TensorView view_of(const std::string& name, const at::Tensor& tensor);

/// A copy of the entry; undefined where these files do not hold its dtype.
at::Tensor copy_of(const models::TensorFile& file, const models::TensorEntry& entry);

}  // namespace sparsereel::app
