// The state of a denoising as named tensors and JSON: what a checkpoint's file holds and what ranks tell each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "models/request/cache_rule.h"
#include "models/request/denoising_state.h"

namespace sparsereel::models {

struct StateParts {
  std::map<std::string, at::Tensor> tensors;  // on the CPU
  nlohmann::json run;                         // the rest
};

/// The name of the latents among the tensors.
inline constexpr const char* kStateLatents = "latents";

StateParts parts_of(const DenoisingState& state);
/// `cache`: the state must have all that it needs. Throws Error where a part is missing, of another kind, or
/// contradicts the others, and any other exception where the parts were made up.
DenoisingState state_of(const StateParts& parts, const CacheRule& cache);

}  // namespace sparsereel::models
