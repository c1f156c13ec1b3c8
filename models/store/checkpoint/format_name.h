// The short name of the format that a part's weights are stored in. No torch.
#pragma once

#include <string>

#include "models/store/checkpoint/component.h"

namespace sparsereel::models {

struct WeightsFormat {
  std::string name;  // "fp16", "bf16", "fp8_scaled", "fp8_e4m3fn", "Q4_K_M"
  double bits = 0;   // average bits per weight
};

/// Returns the format that most bytes are stored in. Only the file's name tells a GGUF's mixture (the M of Q4_K_M).
WeightsFormat format_of(const Component& component);

/// Returns the usual name of the weight's format, "int8_convrot"; empty if its dtype and its scales tell the format.
std::string label_of(const QuantizedLayers& layers, const std::string& weight);

/// Returns true for the name of a scale, or of another tensor that only describes quantized weights.
bool is_scale(const std::string& name);
bool has_scale(const TensorTable& tensors, const std::string& name);

}  // namespace sparsereel::models
