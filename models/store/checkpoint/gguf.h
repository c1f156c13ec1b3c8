// The GGUF format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3: parser. No torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

/// True where the file's first bytes say that it is a GGUF.
bool is_gguf(std::span<const std::byte> file);

/// Parses and checks a whole file. Shapes have the last dimension innermost, as torch has them; a tensor that lies in
/// another shape than it had ("comfy.gguf.orig_shape.NAME") gets that back, and a 3-D convolution that was folded to
/// four dimensions its five. Of the key-values, metadata holds
/// general.architecture, general.alignment, split.count and those of the tokenizer and of shapes: texts as they are,
/// all else as JSON. Every length, count and offset is checked; no tensors overlap. Throws Error naming `path` and the
/// tensor. The fuzz entry.
TensorList parse_gguf(std::span<const std::byte> file, const std::string& path);

}  // namespace sparsereel::models
