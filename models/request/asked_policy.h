// The attention policy that a request asks for. No torch.
#pragma once

#include "attention/policies/policy.h"
#include "models/request/request.h"

namespace sparsereel::models {

/// Returns what replaces dropped blocks: the request's `dropped`, if it is set. Otherwise returns mean if the request
/// bounds errors or ranks blocks by error, because the predicted error is the error of means. In all other cases
/// returns the policy's default.
attention::Dropped dropped_of(const Request& request);

/// Builds a policy from the members of the request that select blocks. Ignores Request::policy and
/// Request::dense_steps. An unset member keeps the policy's default, with three exceptions. `dropped` becomes
/// dropped_of(). `ranking` becomes error if the request bounds errors (error or block_error), or else usual_ranking()
/// of `dropped`. `topk` becomes usual_topk() of `dropped`. Throws Error for values out of range.
attention::Policy make_policy(const Request& request);

}  // namespace sparsereel::models
