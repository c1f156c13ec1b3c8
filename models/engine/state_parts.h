// The state of a denoising as named tensors and JSON, for checkpoint files and for messages between ranks.
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
  nlohmann::json run;                         // all of the state that is not a tensor
};

inline constexpr const char *kStateLatents = "latents", *kStateSound = "sound";

StateParts parts_of(const DenoisingState& state);
/// Restores a state. Throws Error if a part is missing, has the wrong type or contradicts other parts, or if the step
/// cache's tensors do not fit the `cache` rule. Malformed parts may cause any other exception.
DenoisingState state_of(const StateParts& parts, const CacheRule& cache);

}  // namespace sparsereel::models
