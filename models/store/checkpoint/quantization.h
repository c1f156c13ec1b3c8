// Reads how files describe their quantized weights. No torch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// Throws Error naming the layer if weights are quantized in an unsupported way. Supported are 8-bit layers with one
/// scale per layer or per row. Nothing unknown may lie beside their weight or in ComfyUI's description
/// (NAME.comfy_quant, or _quantization_metadata in the header).
void check_quantization(const std::vector<std::shared_ptr<TensorFile>>& files);

/// Returns the possible names of the scale of "x.weight": ComfyUI's two, the second also used by exporters that scale
/// each row.
std::vector<std::string> scale_names(const std::string& name);

/// Returns true for tensors that only describe the format, or scale activations. This program computes those scales
/// itself, for each token.
bool is_about_quantization(const std::string& name);

}  // namespace sparsereel::models
