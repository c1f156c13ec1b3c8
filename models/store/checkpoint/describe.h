// Describes a model before any weight is read. No torch.
#pragma once

#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Returns what a run must know about the model: what Family::describe returns, the family's samplers and prompt rules,
/// and the scheduler's settings. Throws Error as Family::describe does.
ModelSpec describe(const Checkpoint& checkpoint);

}  // namespace sparsereel::models
