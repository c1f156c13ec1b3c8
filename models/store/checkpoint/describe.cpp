// Adds the fields of the family's row and the scheduler's settings to the family's description of a checkpoint.
#include "models/store/checkpoint/describe.h"

#include <nlohmann/json.hpp>
#include <string>

#include "models/request/sampling.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::models {

ModelSpec describe(const Checkpoint& checkpoint) {
  const Family& family = *find_family(checkpoint.pipeline_class());
  ModelSpec spec = family.describe(checkpoint);
  spec.transformer_class = checkpoint.component_class(spec.experts.front().role);
  spec.samplers = family.samplers;
  spec.prompt = family.prompt;
  spec.defaults.sampler = checkpoint.component_class("scheduler");
  std::string file;
  const nlohmann::json scheduler = checkpoint.config("scheduler", &file);
  spec.scheduler = find_sampler(family.samplers, spec.defaults.sampler).parse(scheduler, file);
  if (spec.sound.any()) {
    const SamplerSpec& sampler = find_sampler(family.samplers, checkpoint.component_class(kSoundScheduler));
    const nlohmann::json of_sound = checkpoint.config(kSoundScheduler, &file);
    spec.sound.scheduler = sampler.parse(of_sound, file);
    spec.sound.scheduler.kind = sampler.kind;
  }
  return spec;
}

}  // namespace sparsereel::models
