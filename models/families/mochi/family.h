// Mochi's row in the table of families. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family mochi_family();

/// Knows diffusers' names and those of the authors' files, which ComfyUI keeps. These store q, k and v in one matrix, a
/// feed-forward's gates before its values, and shifts before scales.
Part mochi_transformer_part();
/// Knows the decoder's names, in a separate file or with the encoder.
Part mochi_vae_part();

}  // namespace sparsereel::models
