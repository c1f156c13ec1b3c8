// Writes a tensor's shape for messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace sparsereel::models {

/// Formats a tensor's shape: "[1, 16, 4]".
std::string shape_of(const at::Tensor& tensor);

}  // namespace sparsereel::models
