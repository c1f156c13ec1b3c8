// The table of families. A new family is a row here, its classes in components.cpp, its config structs and its model
// files.
#include "models/family.h"

#include <algorithm>

#include "models/checkpoint/model_folder.h"
#include "models/dit/cogvideox_config.h"

namespace sparsereel::models {

const Part& Family::part(std::string_view role) const {
  return *std::find_if(parts.begin(), parts.end(), [&](const Part& each) { return each.role == role; });
}

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {.pipeline_class = "CogVideoXPipeline",
       .name = "CogVideoX",
       .parts = {{"scheduler", {"CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"}},
                 {"text_encoder", {"T5EncoderModel"}},
                 {"tokenizer", {"T5Tokenizer", "T5TokenizerFast"}},
                 {"transformer", {"CogVideoXTransformer3DModel"}},
                 {"vae", {"AutoencoderKLCogVideoX"}}},
       .samplers = {{"ddim", "CogVideoXDDIMScheduler"}, {"dpm", "CogVideoXDPMScheduler"}},
       .describe = describe_cogvideox},
  };
  return table;
}

const Family* find_family(std::string_view pipeline_class) {
  for (const Family& family : families()) {
    if (family.pipeline_class == pipeline_class) return &family;
  }
  return nullptr;
}

ModelSpec describe(const ModelFolder& folder) {
  const Family& family = *find_family(folder.pipeline_class());
  ModelSpec spec = family.describe(folder);
  spec.transformer_class = folder.component_class("transformer");
  spec.samplers = family.samplers;
  return spec;
}

std::vector<SamplerName> all_samplers() {
  std::vector<SamplerName> all;
  for (const Family& family : families()) {
    for (const SamplerName& sampler : family.samplers) {
      const auto same = [&](const SamplerName& each) { return each.class_name == sampler.class_name; };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(sampler);
    }
  }
  return all;
}

}  // namespace sparsereel::models
