// Mochi's row in the table of families. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family mochi_family();

/// The transformer's part. It knows diffusers' names and those of the authors' files, which ComfyUI keeps. The authors
/// store q, k and v in one matrix, a feed-forward's gates before the values that they gate, and shifts before scales.
Part mochi_transformer_part();
/// The VAE's part. It knows the decoder's names, in a separate file or together with the encoder.
Part mochi_vae_part();

}  // namespace sparsereel::models
