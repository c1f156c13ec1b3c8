// The table of formats of quantized weights in .safetensors files. No torch.
#pragma once

#include <string>
#include <string_view>

#include "models/store/checkpoint/quantized_layer.h"

namespace sparsereel::models {

/// Returns the format of this name; null if it is unknown.
const QuantizedFormat* format_named(std::string_view name);

/// Sets the layer's rows and columns, from the shapes of its tensors.
void set_size(QuantizedLayer& layer);

/// Says what is wrong with the layer's tensors or rotation, as a phrase that follows "quantized as FORMAT with"; empty
/// if nothing is wrong.
std::string problem_of(const QuantizedLayer& layer);

}  // namespace sparsereel::models
