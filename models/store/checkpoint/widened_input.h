// LoRAs that widen the input of a transformer, so that a model for text also takes an image. No torch.
#pragma once

#include <vector>

#include "models/request/lora_choice.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// If a LoRA's A, or its difference of the whole weight, has more input channels than the layer that takes the latents
/// (LoraNames::input), appends channels of zeros to the layer's weight, as diffusers and ComfyUI do with the LoRAs
/// FLUX.1-Canny-dev-lora and FLUX.1-Depth-dev-lora. Returns true if it did. Call it before describe() and add_loras().
/// LoRAs for any other number of channels than the model with an image has are left to add_loras(). Throws Error naming
/// the weight's file and the tensors if the weight is stored in 8 bits or packed, and as read_lora() does.
bool widen_input(Checkpoint& checkpoint, const std::vector<LoraChoice>& loras);

}  // namespace sparsereel::models
