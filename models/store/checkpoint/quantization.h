// Reads how files describe their quantized weights. No torch.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/quantized_layer.h"
#include "models/store/checkpoint/stored_weights.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// Quantized layers, by the names of their weights.
using QuantizedLayers = std::map<std::string, QuantizedLayer>;

/// Throws Error naming the layer if weights are quantized in an unsupported way. quantized_format.cpp lists the
/// supported formats. No unknown tensor may stand beside the layer's weight, and ComfyUI's description of the layer
/// (NAME.comfy_quant, or _quantization_metadata in the header) may have no unknown key.
void check_quantization(const std::vector<std::shared_ptr<TensorFile>>& files);

/// Finds the quantized layers of these tensors, which lie in these files. Finds none if the files describe them in an
/// unsupported way, which check_quantization() reports. The tensors may have other names than in the files.
QuantizedLayers quantized_layers(const TensorTable& tensors, const std::vector<std::shared_ptr<TensorFile>>& files);

/// Throws Error naming the file and the weight if a layer's tensors do not fit its format.
void check_layers(const QuantizedLayers& layers, const std::vector<std::shared_ptr<TensorFile>>& files);

/// Returns the name that ComfyUI gives to a tensor of quanto: "q.weight" for "q.weight._data". Other names stay.
std::string without_quanto(const std::string& name);

/// Returns the possible names of the scale of "x.weight": ComfyUI's two, the second also used by exporters that scale
/// each row.
std::vector<std::string> scale_names(const std::string& name);

/// Returns true for tensors that only describe the format, or scale activations. This program computes those scales
/// itself, for each token.
bool is_about_quantization(const std::string& name);

/// Returns true for the name of a tensor that belongs to a quantized weight, or only describes the format.
bool is_beside_weight(const std::string& name);

/// Returns true if a tensor of this name has no rows of its own, so that layers that share a weight share it too.
bool is_undivided(const std::string& name);

}  // namespace sparsereel::models
