// Describes the weight files of MiniMax-H3's parts, in the forms that several programs write. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

/// Returns the description of the transformer's files. They have the tensor names of diffusers, or those of the
/// authors, which ComfyUI also uses. Files in the authors' names hold q, k and v in one layer, in one of two orders
/// (fused_names.h), and a feed-forward's gates before its values.
Part minimax_h3_transformer_part();

/// Returns the description of the video VAE's files, in the names of diffusers or of the authors, which ComfyUI also
/// uses.
Part minimax_h3_vae_part();

/// Returns the description of the sound VAE's files. ComfyUI's files hold the weights of convolutions. Other files hold
/// the lengths and the directions of the weights' rows.
Part minimax_h3_sound_vae_part();

/// Returns the layers of the transformer that LoRAs change. LoRA files in the authors' names hold q, k and v in one
/// layer. Its rows are head by head if the tensors' names contain PEFT's adapter name, as DiffSynth-Studio writes them;
/// otherwise all queries come first (see loaders/lora_conversion_utils.py in diffusers).
LoraNames minimax_h3_lora_names();

}  // namespace sparsereel::models
