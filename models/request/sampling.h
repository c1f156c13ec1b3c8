// The sampler and the number of steps of a request for one model. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/request/request.h"
#include "models/request/spec.h"

namespace sparsereel::models {

/// Returns the sampler of this class, which must be in the list.
const SamplerSpec& find_sampler(const std::vector<SamplerSpec>& samplers, std::string_view class_name);

/// Returns the class of the sampler that the request names, or else the checkpoint's sampler. Throws Error (field
/// scheduler) if the name is unknown.
std::string sampler_class(const Request& request, const ModelSpec& spec);

/// Returns true if the sampler is a flow-matching sampler, which has a shift and takes sigmas. Throws as
/// sampler_class() does.
bool flows(const Request& request, const ModelSpec& spec);

/// Returns the number of denoising steps. This is the number of sigmas if the request gives them and the sampler takes
/// them. Otherwise it is the number that the request or the model gives, less 1 if the sampler counts the clean end as
/// a step. Throws Error (field steps) if that leaves no step.
int64_t steps_of(const Request& request, const ModelSpec& spec);

/// Returns the number of steps that a request without sigmas must give to get this many denoising steps.
int64_t asked_steps_of(int64_t steps, const Request& request, const ModelSpec& spec);

/// Returns the end of the sentence "cache 0.1 has no effect ..."; empty if the cache can have an effect, or is off.
std::string why_cache_has_no_effect(const Request& request, const ModelSpec& spec);

}  // namespace sparsereel::models
