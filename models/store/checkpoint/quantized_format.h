// The formats of quantized weights in .safetensors files, one row each. No torch.
#pragma once

#include <string>
#include <string_view>

#include "models/store/checkpoint/quantized_layer.h"

namespace sparsereel::models {

/// Returns the format of this name; null if it is unknown.
const QuantizedFormat* format_named(std::string_view name);

/// Derives the layer's rows and columns from its tensors.
void set_size(QuantizedLayer& layer);

/// Says what is wrong with the layer's shapes or rotation; empty if nothing is.
std::string problem_of(const QuantizedLayer& layer);

}  // namespace sparsereel::models
