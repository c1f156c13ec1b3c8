// Wan's entry in the table of families. It covers 2.1 T2V 1.3B and 14B, I2V 14B and FLF2V 14B, and 2.2 T2V A14B, I2V
// A14B and TI2V 5B. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family wan_family();

Part wan_transformer_part(const char* role = "transformer", bool optional = false);
/// Returns the description of two VAEs: the VAE of 2.1 and the VAE of 2.2's small model.
Part wan_vae_part();

}  // namespace sparsereel::models
