// Binds the kernel that unpacks rows to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/parameters.h"

namespace sparsereel::models {

/// Unpacks the bytes of packed rows to out [rows, columns] in fp32, fp16 or bf16, with changes by LoRAs added. See
/// unpack().
void unpack_on_cuda(const at::Tensor& bytes, const StoredRows& stored, const at::Tensor& scale, at::Tensor& out);

}  // namespace sparsereel::models
