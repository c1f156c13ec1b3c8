// Recognizes a LoRA's layers by the names of its tensors. No torch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

/// The roles of tensors in a LoRA's layer.
enum class LoraPiece { down, up, bias, alpha, diff, diff_bias };

struct LoraName {
  std::string part;   // part of the model, "text_encoder"; empty if the name does not say, which means the transformer
  std::string layer;  // name in the file, after the part: "blocks.0.attn1.to_q"
  bool underscores = false;  // the layer's name has underscores in place of dots
  bool numbered = false;     // "transformer_1." means only the first of several transformers
  bool has_adapter = false;  // PEFT's name of an adapter was in the tensor's name: "x.lora_A.default.weight"
  LoraPiece piece = LoraPiece::down;
};

/// Parses the names of diffusers and PEFT ("transformer.x.lora_A.weight"), of kohya ("lora_unet_x.lora_down.weight"),
/// and "diffusion_model.x.lora_down.weight" with "x.diff" and "x.diff_b", as in distilled models. Strips the wrappers
/// and prefixes of wrapped_name.h. Returns nothing if the tensor does not belong to a LoRA.
std::optional<LoraName> lora_name(const std::string& tensor);

/// Returns the name as kohya writes it, with underscores in place of dots.
std::string underscored(std::string name);

/// Returns the kind of adapter that has such a tensor ("LoKr"). Such files are published as LoRAs but cannot be added.
/// Returns an empty string if the kind is unknown.
std::string_view other_adapter(std::string_view tensor);

/// Returns true if at least half of the tensors belong to a LoRA or another adapter.
bool is_lora(const TensorTable& tensors);

}  // namespace sparsereel::models
