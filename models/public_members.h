// Converts the members of the public header's structs to the options that Settings merges. No torch.
#pragma once

#include <map>
#include <string>

#include "models/request/model_config.h"
#include "models/request/option.h"
#include "models/sparsereel.h"

namespace sparsereel::models {

/// The values of the members that are set, as texts, by option name.
using MemberTexts = std::map<std::string, std::string>;

/// Throws Error for an option in `request.options` that is also set as a member, that belongs to ModelOptions, or that
/// names a file.
MemberTexts texts_of(const VideoRequest& request);
MemberTexts texts_of(const ModelOptions& options);

/// Returns the options of ModelOptions and VideoRequest, and those that can be set only in a model's YAML file.
const OptionList& member_options();

/// Removes from the config, which was read from a model's YAML file, the options that a VideoRequest cannot set.
void keep_members(ModelConfig& config);

}  // namespace sparsereel::models
