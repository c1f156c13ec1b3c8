// The attention policy that a request asks for. No torch.
#pragma once

#include "attention/policies/policy.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// Returns the replacement for dropped blocks: the request's choice, or what the rest of its block selection requires.
attention::Dropped dropped_of(const Request& request);

/// Returns the block selection of the request's own members, without its `policy` and its dense steps. Unset members
/// keep the policy's defaults. An error bound or a ranking by error implies that means replace dropped blocks; a
/// replacement implies its usual ranking. Throws Error for values out of range.
attention::Policy make_policy(const Request& request);

}  // namespace sparsereel::models
