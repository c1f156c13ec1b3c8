// The model families that this program runs: pipeline class -> family, and the component classes each one may have. No
// torch.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

/// One family of pipelines, as model_index.json names it and its parts.
struct Family {
  std::string pipeline_class;                                  // "CogVideoXPipeline"
  std::string name;                                            // "CogVideoX"
  std::map<std::string, std::vector<std::string>> components;  // component -> classes that are supported
};

/// Every family, in the order in which help texts list them.
const std::vector<Family>& families();

/// The family of a pipeline class; nullptr where it is not supported.
const Family* find_family(std::string_view pipeline_class);

/// "a, b or c" for error messages.
std::string list_of(const std::vector<std::string>& choices);

}  // namespace sparsereel::models
