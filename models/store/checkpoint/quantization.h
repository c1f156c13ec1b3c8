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
/// supported formats. Also throws Error for an unknown tensor beside a layer's weight, and for an unknown key in
/// ComfyUI's description of the layer (the tensor NAME.comfy_quant, or _quantization_metadata in the header).
void check_quantization(const std::vector<std::shared_ptr<TensorFile>>& files);

/// Finds the quantized layers among `tensors`, which are in `files` but may have other names there. Returns none if the
/// files describe layers in an unsupported way; check_quantization() reports that.
QuantizedLayers quantized_layers(const TensorTable& tensors, const std::vector<std::shared_ptr<TensorFile>>& files);

/// Throws Error naming the file and the weight if a layer's tensors do not fit its format.
void check_layers(const QuantizedLayers& layers, const std::vector<std::shared_ptr<TensorFile>>& files);

/// Translates quanto's names to ComfyUI's: "q.weight._data" becomes "q.weight". Returns other names as they are.
std::string without_quanto(const std::string& name);

/// Returns the possible names of the scale of "x.weight": "x.scale_weight" and "x.weight_scale".
std::vector<std::string> scale_names(const std::string& name);

/// Returns true for tensors that only describe the format, or that scale activations. The latter are not used: this
/// program computes the scales of activations itself, for each token.
bool is_about_quantization(const std::string& name);

/// Returns true for the name of a tensor that belongs to a quantized weight, or only describes the format.
bool is_beside_weight(const std::string& name);

/// Returns true if the first dimension of the tensor of this name does not count the rows of the weight. If several
/// layers are parts of one stored weight, all of them use the whole tensor. `tensors` has the tensors beside it.
bool is_undivided(const std::string& name, const TensorTable& tensors);

}  // namespace sparsereel::models
