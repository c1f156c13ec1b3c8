// LoRA files (Hu et al., arXiv:2106.09685): a layer's weight becomes W + alpha / rank B A. Reads headers and the
// few bytes of the alphas. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// What a file holds of one layer.
struct LoraLayer {
  std::string part;          // of the model, "text_encoder"; empty: the file does not say, and means the transformer
  std::string name;          // as the file spells it behind the part: "blocks.0.attn1.to_q"
  bool underscores = false;  // stand where a name has dots
  const TensorEntry* down = nullptr;  // A [rank, in], or of a convolution [rank, in, ..]
  const TensorEntry* up = nullptr;    // B [out, rank], or [out, rank, ..]
  const TensorEntry* bias = nullptr;  // [out], beside B and scaled like it
  const TensorEntry* diff = nullptr;  // of the whole weight, in its shape: neither A nor B
  const TensorEntry* diff_bias = nullptr;
  double alpha = 0;     // the rank, where nothing says another one
  double strength = 1;  // alpha / rank

  int64_t rank() const { return down == nullptr ? 0 : down->shape[0]; }
};

struct LoraFile {
  std::shared_ptr<const TensorFile> file;
  std::vector<LoraLayer> layers;       // by their names
  std::vector<std::string> strangers;  // names of tensors that are no LoRA's
  bool numbers_transformers = false;   // it says "transformer_1", which means the first of several and no other
  bool guesses_alpha = false;          // its names are PEFT's, which keeps alphas elsewhere, and nothing says one
};

/// Reads the names of lora_names.h and the alphas of tensors or of lora_settings.h. Throws Error naming file and tensor
/// where it is something else: another kind of adapter, a file without a layer, an A without its B, ranks or shapes
/// that do not fit each other, an impossible alpha.
LoraFile read_lora(const std::filesystem::path& path);

}  // namespace sparsereel::models
