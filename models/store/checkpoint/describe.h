// Describes a model before any weight is read. No torch.
#pragma once

#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Returns the family's description of the checkpoint. Throws Error as Family::describe does.
ModelSpec describe(const Checkpoint& checkpoint);

}  // namespace sparsereel::models
