// The attention policy that a request asks for. No torch.
#pragma once

#include "attention/policies/policy.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// What stands for its dropped blocks: as asked for, or as the rest of its block selection needs it.
attention::Dropped dropped_of(const Request& request);

/// The request's own block selection, whatever its `policy`, without dense steps; unset members keep the policy's
/// defaults. What asks for means (a bound on errors, a ranking by them) brings them, and what stands for dropped blocks
/// brings its usual ranking. Throws Error for values out of their range.
attention::Policy make_policy(const Request& request);

}  // namespace sparsereel::models
