// LoRA files (Hu et al., arXiv:2106.09685): a layer's weight becomes W + alpha / rank B A. Reads headers and the
// few bytes of the alphas. No torch.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/checkpoint/tensor_file.h"

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
  double alpha = 0;     // the rank, where the file names none
  double strength = 1;  // alpha / rank

  int64_t rank() const { return down == nullptr ? 0 : down->shape[0]; }
  bool convolves() const { return down != nullptr && std::max(down->shape.size(), up->shape.size()) > 2; }
};

struct LoraFile {
  std::shared_ptr<const TensorFile> file;
  std::vector<LoraLayer> layers;  // by their names
  bool guesses_alpha = false;     // its alphas are in PEFT's adapter_config.json, and not here
};

/// The names of diffusers and PEFT ("transformer.x.lora_A.weight", with alphas in the file's metadata), kohya's
/// ("lora_unet_x.lora_down.weight"), and "diffusion_model.x.lora_down.weight" with "x.diff" and "x.diff_b" as
/// distilled models have them; "base_model.model." and "pipe.dit." may stand before. Throws Error naming file and
/// tensor where it is something else: another kind of adapter, an A without its B, ranks or shapes that do not fit each
/// other, an impossible alpha.
LoraFile read_lora(const std::filesystem::path& path);

}  // namespace sparsereel::models
