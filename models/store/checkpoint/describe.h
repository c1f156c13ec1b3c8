// What is known of a model before any weight is read. No torch.
#pragma once

#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// What the checkpoint's family says of it. Throws Error as Family::describe does.
ModelSpec describe(const Checkpoint& checkpoint);

}  // namespace sparsereel::models
