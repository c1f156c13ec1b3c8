// Unpacks tensors with the kernel of layers/cuda/unpack.cu.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/layers/parameters.h"

namespace sparsereel::models {

/// Unpacks the bytes of packed rows to out [rows, columns] in fp32, fp16 or bf16, with changes by LoRAs added, as
/// unpack() does.
void unpack_on_cuda(const at::Tensor& bytes, const StoredRows& stored, const at::Tensor& scale, at::Tensor& out);

}  // namespace sparsereel::models
