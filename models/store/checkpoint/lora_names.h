// Tells a LoRA's layers by the names of its tensors. No torch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

/// The roles that tensors have in a LoRA's layer.
enum class LoraPiece { down, up, bias, alpha, diff, diff_bias };

struct LoraName {
  std::string part;          // of the model, "text_encoder"; empty: the name does not say, and means the transformer
  std::string layer;         // as the file spells it behind the part: "blocks.0.attn1.to_q"
  bool underscores = false;  // the layer's name has underscores in place of all dots
  bool numbered = false;     // "transformer_1." means the first of several transformers and no other
  LoraPiece piece = LoraPiece::down;
};

/// Reads the names of diffusers and PEFT ("transformer.x.lora_A.weight"), kohya's ("lora_unet_x.lora_down.weight"),
/// and "diffusion_model.x.lora_down.weight" with "x.diff" and "x.diff_b" as distilled models have them. Strips the
/// wrappers and prefixes of wrapped_name.h. Returns nothing where the name is no LoRA's.
std::optional<LoraName> lora_name(const std::string& tensor);

/// The name as kohya writes it: underscores in place of dots.
std::string underscored(std::string name);

/// The kind of adapter that such a tensor makes of a file, "LoKr", which is published as a LoRA and is none that can be
/// added; empty: none that is known.
std::string_view other_adapter(std::string_view tensor);

/// True where at least half of the tensors are a LoRA's or another adapter's.
bool is_lora(const TensorTable& tensors);

}  // namespace sparsereel::models
