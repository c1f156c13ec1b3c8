// Prepares a checkpoint for LoRAs that widen the transformer's input, so that a text-to-video model also takes an
// image. No torch.
#pragma once

#include <vector>

#include "models/request/lora_choice.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// If a LoRA is for the model that also takes an image, it changes more input channels of the layer that takes the
/// latents (LoraNames::input) than this checkpoint has. Then this function appends channels of zeros to the layer's
/// weight, and returns true. diffusers and ComfyUI do the same for the LoRAs FLUX.1-Canny-dev-lora and
/// FLUX.1-Depth-dev-lora. Call it before describe() and add_loras(). add_loras() reports LoRAs for any other number of
/// channels. Throws Error naming the weight's file and the tensors if the weight is stored in 8 bits or packed. Also
/// throws Error as read_lora() does.
bool widen_input(Checkpoint& checkpoint, const std::vector<LoraChoice>& loras);

}  // namespace sparsereel::models
