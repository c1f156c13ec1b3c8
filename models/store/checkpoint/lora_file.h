// Reads LoRA files (Hu et al., arXiv:2106.09685): a layer's weight W becomes W + (alpha / rank) * B * A. Reads headers
// and the few bytes of the alphas. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The tensors that a file holds for one layer.
struct LoraLayer {
  // Role of the model's part ("text_encoder"); empty if the file names none, which means the transformer.
  std::string part;
  std::string name;                   // the rest of the name in the file: "blocks.0.attn1.to_q"
  bool underscores = false;           // the name has underscores in place of dots
  bool has_adapter = false;           // LoraName::has_adapter of any of the layer's tensors
  const TensorEntry* down = nullptr;  // A [rank, in]; for a convolution [rank, in, ..]
  const TensorEntry* up = nullptr;    // B [out, rank], or [out, rank, ..]
  const TensorEntry* bias = nullptr;  // [out], scaled like B times A
  const TensorEntry* diff = nullptr;  // change of the whole weight, in the weight's shape; such a layer has no A and B
  const TensorEntry* diff_bias = nullptr;
  double alpha = 0;     // equal to the rank if the file gives no alpha
  double strength = 1;  // alpha / rank, or alpha / sqrt(rank) (LoraSettings::uses_rslora)

  int64_t rank() const { return down == nullptr ? 0 : down->shape[0]; }
};

struct LoraFile {
  std::shared_ptr<const TensorFile> file;
  std::vector<LoraLayer> layers;       // sorted by name
  std::vector<std::string> strangers;  // quoted names of tensors that do not belong to a LoRA
  // True if names say "transformer_1", which means only the first of several transformers.
  bool numbers_transformers = false;
  // True if the tensors have PEFT's names and no alpha was found. PEFT stores alphas in another file, which may be
  // missing, so the true alphas may differ from the ranks that replace them.
  bool guesses_alpha = false;
};

/// Sorts a file's tensors into layers by their names (lora_names.h). Takes alphas from tensors or from settings
/// (lora_settings.h). Throws Error naming file and tensor if the file is another kind of adapter or has no layers, if
/// an A has no B, or if a rank, shape or alpha is impossible.
LoraFile read_lora(const std::filesystem::path& path);

}  // namespace sparsereel::models
