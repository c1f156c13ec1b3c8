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
  nlohmann::json run;                         // everything in the state that is not a tensor
};

inline constexpr const char *kStateLatents = "latents", *kStateSound = "sound";

StateParts parts_of(const DenoisingState& state);
/// Restores a state. Throws Error if a tensor has the wrong dtype or number of dimensions, if parts contradict each
/// other, or if the step cache's tensors do not fit the `cache` rule. Other malformed or missing parts cause
/// std::out_of_range, nlohmann::json::exception or c10::Error. Callers must therefore catch std::exception if the parts
/// come from a file or from another process.
DenoisingState state_of(const StateParts& parts, const CacheRule& cache);

}  // namespace sparsereel::models
