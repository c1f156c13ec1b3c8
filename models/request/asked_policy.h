// The attention policy that a request asks for. No torch.
#pragma once

#include "attention/policies/policy.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// Returns what replaces dropped blocks: the value that the request gives; otherwise means if an error bound or ranking
/// by error needs them; otherwise the policy's default.
attention::Dropped dropped_of(const Request& request);

/// Builds a policy from the members of the request that select blocks. Ignores Request::policy and
/// Request::dense_steps. Unset members keep the policy's defaults, except these: `dropped` is dropped_of(). `ranking`
/// is error if an error bound is given; otherwise it is usual_ranking() of `dropped`. `topk` is usual_topk() of
/// `dropped`. Throws Error for values out of range.
attention::Policy make_policy(const Request& request);

}  // namespace sparsereel::models
