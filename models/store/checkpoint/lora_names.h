// Parses the names of a LoRA's tensors. No torch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

/// The kind of a tensor within its layer: `down` is A and `up` is B; LoraLayer (lora_file.h) describes the other kinds.
enum class LoraPiece { down, up, bias, alpha, diff, diff_bias };

struct LoraName {
  // Role of the model's part ("text_encoder"); empty if the name has none, which means the transformer.
  std::string part;
  std::string layer;         // the rest of the name: "blocks.0.attn1.to_q"
  bool underscores = false;  // the layer's name has underscores in place of dots
  bool numbered = false;     // true for "transformer_1.", which means only the first of several transformers
  bool has_adapter = false;  // true if the tensor's name has PEFT's name of an adapter: "x.lora_A.default.weight"
  LoraPiece piece = LoraPiece::down;
};

/// Parses the names of diffusers and PEFT ("transformer.x.lora_A.weight"), of kohya ("lora_unet_x.lora_down.weight"),
/// and "diffusion_model.x.lora_down.weight" with "x.diff" and "x.diff_b", as in distilled models. Strips the wrappers
/// and prefixes of wrapped_name.h. Returns nullopt if the tensor does not belong to a LoRA.
std::optional<LoraName> lora_name(const std::string& tensor);

/// Returns the name as kohya writes it, with underscores in place of dots.
std::string underscored(std::string name);

/// Returns the kind of adapter, other than a LoRA, that has such a tensor ("LoKr"); empty if no such kind is known.
/// Files of these kinds are published as LoRAs, but this program cannot add them.
std::string_view other_adapter(std::string_view tensor);

/// Returns true if at least half of the tensors belong to a LoRA or another adapter.
bool is_lora(const TensorTable& tensors);

}  // namespace sparsereel::models
