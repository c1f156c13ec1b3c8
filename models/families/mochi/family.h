// Mochi's row in the table of families. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family mochi_family();

/// Its names are diffusers', and those of the authors' files, which ComfyUI's keep: q, k and v in one matrix, the gates
/// of a feed-forward before what they gate, shifts before scales.
Part mochi_transformer_part();
/// Its names are those of the decoder, in a file of its own or with the encoder.
Part mochi_vae_part();

}  // namespace sparsereel::models
