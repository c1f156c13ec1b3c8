// The short name of the format in which a part's weights are stored. No torch.
#pragma once

#include <string>

#include "models/store/checkpoint/component.h"

namespace sparsereel::models {

struct WeightsFormat {
  std::string name;  // "fp16", "bf16", "fp8_scaled", "fp8_e4m3fn", "Q4_K_M"
  double bits = 0;   // average bits per weight
};

/// Returns the format in which most bytes are stored. A GGUF's mixture of types (the M of Q4_K_M) comes from the file's
/// name, because nothing else tells it.
WeightsFormat format_of(const Component& component);

/// Returns the usual name of a quantized weight's format, such as "int8_convrot"; empty if the weight is not one of
/// `layers`.
std::string label_of(const QuantizedLayers& layers, const std::string& weight);

/// Returns true for the name of a scale, or of another tensor that only describes quantized weights.
bool is_scale(const std::string& name);
/// Returns true if `tensors` has a scale of the tensor `name`.
bool has_scale(const TensorTable& tensors, const std::string& name);

}  // namespace sparsereel::models
