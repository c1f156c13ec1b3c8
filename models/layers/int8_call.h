// Multiplies tensors with the kernels for int8 rows.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/activation.h"
#include "models/layers/linear_layer.h"

namespace sparsereel::models {

/// Returns true if int8_linear_on_cuda() accepts x [.., in] and the layer: fp16 or bf16 on a GPU, where `in` is a
/// multiple of 16 and at most 16384, and each part of the layer has a multiple of 16 outputs.
bool has_int8_product(const at::Tensor& x, const Linear& layer);

/// Returns int8_linear(x, layer) as [rows, out]. x may be int8 already, in the format that shared_rotation() gives.
at::Tensor int8_linear_on_cuda(const Activation& x, const Linear& layer);

}  // namespace sparsereel::models
