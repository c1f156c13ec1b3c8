// Open-Sora-Plan's entry in the table of families. No torch.
#pragma once

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

Family open_sora_plan_family();

Part open_sora_plan_transformer_part();
Part open_sora_plan_vae_part();

}  // namespace sparsereel::models
