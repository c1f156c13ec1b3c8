// What files of quantised weights say of themselves. No torch.
#pragma once

#include <string>
#include <vector>

#include "models/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// Throws Error with the format's name where a file's weights are packed in a way that is not read: what ComfyUI's
/// files say of each layer, in NAME.comfy_quant or the metadata's _quantization_metadata, or tensors that only nvfp4
/// has. Numbers of 8 bits with a scale a layer or a row are read.
void check_quantization(const TensorFile& file);

/// "x.weight" -> where its scale may be. Those in use: ComfyUI's and its successors' (both), and that of exporters
/// which scale each row.
std::vector<std::string> scale_names(const std::string& name);

/// What such files say of themselves, and of activations, whose scales are made anew for each token here.
bool is_about_quantization(const std::string& name);

}  // namespace sparsereel::models
