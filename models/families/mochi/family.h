// Mochi's entry in the table of families. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family mochi_family();

/// Returns the description of the transformer's files. Their tensors have the names of diffusers, or the names of the
/// authors, which ComfyUI also uses. The authors' files store q, k and v in one matrix, a feed-forward's gates before
/// its values, and shifts before scales.
Part mochi_transformer_part();
/// Returns the description of the VAE's files, which hold the decoder alone or also the encoder.
Part mochi_vae_part();

}  // namespace sparsereel::models
