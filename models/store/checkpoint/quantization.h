// What files of quantised weights say of themselves. No torch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// Throws Error naming the layer where the weights of a component's files are packed in a way that is not read. Layers
/// of 8 bits with a scale a layer or a row are read: those that have nothing else beside their weight, and of which
/// ComfyUI's descriptions (NAME.comfy_quant, or _quantization_metadata of the header) say nothing that is unknown here.
void check_quantization(const std::vector<std::shared_ptr<TensorFile>>& files);

/// "x.weight" -> where its scale may be. Those in use: ComfyUI's and its successors' (both), and that of exporters
/// which scale each row.
std::vector<std::string> scale_names(const std::string& name);

/// What such files say of themselves, and of activations, whose scales are made anew for each token here.
bool is_about_quantization(const std::string& name);

}  // namespace sparsereel::models
