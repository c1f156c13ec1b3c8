// Reads LoRA files (Hu et al., arXiv:2106.09685): a layer's weight becomes W + alpha / rank B A. Reads headers and the
// few bytes of the alphas. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The tensors that a file holds for one layer.
struct LoraLayer {
  std::string part;  // part of the model, "text_encoder"; empty if the file does not say, which means the transformer
  std::string name;  // name in the file, after the part: "blocks.0.attn1.to_q"
  bool underscores = false;           // the name has underscores in place of dots
  bool has_adapter = false;           // as in LoraName, for any of the layer's tensors
  const TensorEntry* down = nullptr;  // A [rank, in]; for a convolution [rank, in, ..]
  const TensorEntry* up = nullptr;    // B [out, rank], or [out, rank, ..]
  const TensorEntry* bias = nullptr;  // [out], beside B and scaled like it
  const TensorEntry* diff = nullptr;  // difference of the whole weight, in the weight's shape, without A and B
  const TensorEntry* diff_bias = nullptr;
  double alpha = 0;     // the rank if the file says nothing
  double strength = 1;  // alpha / rank

  int64_t rank() const { return down == nullptr ? 0 : down->shape[0]; }
};

struct LoraFile {
  std::shared_ptr<const TensorFile> file;
  std::vector<LoraLayer> layers;       // by their names
  std::vector<std::string> strangers;  // quoted names of tensors that do not belong to a LoRA
  bool numbers_transformers = false;   // names say "transformer_1", which means only the first of several transformers
  bool guesses_alpha = false;          // names are PEFT's, which keeps alphas in another file, and no alpha was found
};

/// Reads the tensors by the names of lora_names.h, and alphas from tensors or lora_settings.h. Throws Error naming file
/// and tensor for other kinds of adapters, files without layers, an A without its B, and impossible ranks, shapes or
/// alphas.
LoraFile read_lora(const std::filesystem::path& path);

}  // namespace sparsereel::models
