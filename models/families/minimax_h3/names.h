// The parts of MiniMax-H3 that have weights of their own, as files of several programs hold them. No torch.
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

/// Returns the description of the sound VAE's files. ComfyUI's hold the weights of convolutions, the others hold
/// lengths and directions of the weights' rows.
Part minimax_h3_sound_vae_part();

/// Returns the layers of the transformer that LoRAs change. Files in the authors' names hold q, k and v in one layer:
/// all queries first, or head by head if tensors also name PEFT's adapter, as DiffSynth-Studio writes them (diffusers,
/// loaders/lora_conversion_utils.py).
LoraNames minimax_h3_lora_names();

}  // namespace sparsereel::models
