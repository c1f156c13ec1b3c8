// Parser of the GGUF format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3. No torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

/// Returns true if the file begins with GGUF's magic number.
bool is_gguf(std::span<const std::byte> file);

/// Parses and checks a whole file. Shapes have the last dimension innermost, as in torch. If a tensor's original shape
/// is in the metadata ("comfy.gguf.orig_shape.NAME"), the tensor gets it. A weight of a 3-D convolution whose first two
/// dimensions were folded into one gets its five dimensions back. The result's metadata holds general.architecture,
/// general.alignment, split.count, and the key-values of the tokenizer and of shapes. Texts are kept as they are; other
/// values become JSON. Every length, count and offset is checked, and tensors must not overlap. Throws Error naming
/// `path` and the tensor. The fuzz tests call this function.
TensorList parse_gguf(std::span<const std::byte> file, const std::string& path);

}  // namespace sparsereel::models
