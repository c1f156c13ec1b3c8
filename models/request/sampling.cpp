// Finds a request's sampler and number of steps, and decides if a cache can have an effect.
#include "models/request/sampling.h"

#include <algorithm>
#include <vector>

#include "hilbert/error.h"
#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

bool counts_clean_end(const Request& request, const ModelSpec& spec) {
  return find_sampler(spec.samplers, sampler_class(request, spec)).counts_clean_end;
}

bool computes_all(const CacheRule& cache, int64_t steps) {
  if (cache.kind == CacheKind::steps) return cache.steps >= steps;
  return cache.kind == CacheKind::measured && steps == 2;  // the first two steps measure the first ratio
}

}  // namespace

const SamplerSpec& find_sampler(const std::vector<SamplerSpec>& samplers, std::string_view class_name) {
  return *std::ranges::find(samplers, class_name, &SamplerSpec::class_name);
}

std::string sampler_class(const Request& request, const ModelSpec& spec) {
  const bool chooses = spec.takes_scheduler && !request.scheduler.empty();
  const std::string text = chooses ? request.scheduler : spec.defaults.sampler;
  std::vector<std::string> known, classes;
  for (const SamplerSpec& sampler : spec.samplers) {
    if (text == sampler.name || text == sampler.class_name) return sampler.class_name;
    known.push_back(sampler.name);
    classes.push_back(sampler.class_name);
  }
  known.insert(known.end(), classes.begin(), classes.end());
  throw bad_option("scheduler", text + " is not a sampler of this model", "use " + list_of(known));
}

bool flows(const Request& request, const ModelSpec& spec) {
  return has_flow_shift(find_sampler(spec.samplers, sampler_class(request, spec)).kind);
}

int64_t asked_steps_of(int64_t steps, const Request& request, const ModelSpec& spec) {
  return counts_clean_end(request, spec) ? steps + 1 : steps;
}

int64_t steps_of(const Request& request, const ModelSpec& spec) {
  if (!request.sigmas.empty() && flows(request, spec)) return static_cast<int64_t>(request.sigmas.size());
  const int64_t steps = request.num_inference_steps.value_or(spec.defaults.steps);
  const bool counts_end = counts_clean_end(request, spec);
  if (counts_end && steps < 2)
    throw bad_option("steps",
                     std::to_string(steps) + " is impossible for this model, which counts the clean end as a step",
                     "use at least 2");
  return counts_end ? steps - 1 : steps;
}

std::string why_cache_has_no_effect(const Request& request, const ModelSpec& spec) {
  if (!request.cache.on()) return "";
  const int64_t steps = steps_of(request, spec);
  if (steps == 1) return "with one step, because no later step can reuse it";
  if (computes_all(request.cache, steps)) return "with " + std::to_string(steps) + " steps, all of which it computes";
  return spec.layers == 1 ? "for a transformer with one block, which always runs" : "";
}

}  // namespace sparsereel::models
