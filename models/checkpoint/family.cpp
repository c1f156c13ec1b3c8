// The table of families. A new family is a new row here, its config structs, and its model files.
#include "models/checkpoint/family.h"

namespace sparsereel::models {

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {.pipeline_class = "CogVideoXPipeline",
       .name = "CogVideoX",
       .components = {{"scheduler", {"CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"}},
                      {"text_encoder", {"T5EncoderModel"}},
                      {"tokenizer", {"T5Tokenizer", "T5TokenizerFast"}},
                      {"transformer", {"CogVideoXTransformer3DModel"}},
                      {"vae", {"AutoencoderKLCogVideoX"}}}},
  };
  return table;
}

const Family* find_family(std::string_view pipeline_class) {
  for (const Family& family : families()) {
    if (family.pipeline_class == pipeline_class) return &family;
  }
  return nullptr;
}

std::string list_of(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

}  // namespace sparsereel::models
