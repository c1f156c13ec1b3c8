// The sampler and the steps that a request comes to with a model. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/request/request.h"
#include "models/request/spec.h"

namespace sparsereel::models {

/// The sampler of this class, which is among them.
const SamplerSpec& find_sampler(const std::vector<SamplerSpec>& samplers, std::string_view class_name);

/// The class of the sampler: by name or class, or the checkpoint's. Throws Error (field scheduler) for any other.
std::string sampler_class(const Request& request, const ModelSpec& spec);

/// Whether its sampler is one of flow matching: they have a shift, and take sigmas. Throws as sampler_class().
bool flows(const Request& request, const ModelSpec& spec);

/// How many steps it has: one for each of the sigmas where its sampler takes some, else those asked for or the model's.
int64_t steps_of(const Request& request, const ModelSpec& spec);

/// Why its cache can reuse nothing, to follow "cache 0.1 has no effect"; empty where it can, or where there is none.
std::string why_idle_cache(const Request& request, const ModelSpec& spec);

}  // namespace sparsereel::models
