// Settings for models that were distilled to a few steps, from the section `distilled` of a model's file. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "models/request/model_config.h"
#include "models/request/option.h"

namespace sparsereel::models {

/// Finds the row of the section `distilled` that fits the number of steps and the names of the run's weights, and
/// returns its options. If no row fits the names, takes the first row with this number of steps. Returns no options if
/// the option `distilled` is not given. `given` holds the values of sources stronger than the file, by option name.
/// Throws Error (field distilled) if the model's file has no row for this number of steps. Also throws if no LoRA is
/// given and no name says that the transformer is distilled, unless the weights are random.
YamlOptions distilled_options(const ModelConfig& config, const std::map<std::string, std::string>& given,
                              const OptionList::Words& words);

/// Returns the text of Settings::distilled_warning().
std::string distilled_warning(const ModelConfig& config, const std::map<std::string, std::string>& given,
                              const OptionList::Words& words);

/// Returns the row that has a word (Distilled::words) which occurs in the name of these weights or of their folders;
/// null if there is no such row.
const Distilled* distilled_as(const ModelConfig& config, const std::filesystem::path& weights);

}  // namespace sparsereel::models
