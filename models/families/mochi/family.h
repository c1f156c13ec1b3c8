// Mochi's row in the table of families. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family mochi_family();

/// Returns the description of the transformer's files, with the tensor names of diffusers and of the authors, which
/// ComfyUI also uses. The authors' files store q, k and v in one matrix, a feed-forward's gates before its values, and
/// shifts before scales.
Part mochi_transformer_part();
/// Returns the description of the VAE's files, with the decoder alone or together with the encoder.
Part mochi_vae_part();

}  // namespace sparsereel::models
