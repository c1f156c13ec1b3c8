// Parser of the GGUF format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3. No torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "models/store/checkpoint/tensor_list.h"

namespace sparsereel::models {

bool is_gguf(std::span<const std::byte> file);

/// Parses and checks a whole file. Shapes have the last dimension innermost, as in torch. A tensor that was stored in
/// another shape gets its original shape ("comfy.gguf.orig_shape.NAME"). A 3-D convolution that was folded to four
/// dimensions gets its five dimensions back. Metadata holds general.architecture, general.alignment, split.count, and
/// the key-values of the tokenizer and of shapes: texts as they are, all else as JSON. Every length, count and offset
/// is checked, and tensors must not overlap. Throws Error naming `path` and the tensor. The fuzzer calls it.
TensorList parse_gguf(std::span<const std::byte> file, const std::string& path);

}  // namespace sparsereel::models
