// A profile that `tune` made, as a run uses it: its options, its policies, and the check that it fits the model. No
// torch.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "attention/policies/profile.h"
#include "models/request/option.h"
#include "models/request/request.h"
#include "models/request/spec.h"

namespace sparsereel::models {

struct TunedProfile {
  std::filesystem::path file;
  std::shared_ptr<const attention::Profile> content;
  std::string sha256;  // hash of its content
  HeadCount heads;  // numbers of layers and heads with separate policies in this run; 0 if all heads share one policy

  bool by_head() const { return heads.layers > 0; }
};

/// Throws Error naming the file if it is not a profile.
TunedProfile read_profile(const std::filesystem::path& file);

/// Returns the numbers of layers and heads for which the profile has policies.
HeadCount heads_of(const attention::Profile& profile);

/// Returns true if a preset or a profile may set this option.
bool is_of_a_preset(const Option& option);

/// Returns the profile's options by name. Throws Error naming the file if a profile may not set one of them.
std::map<std::string, std::string> options_of(const TunedProfile& profile);

/// Gives the request the profile's policy for each head. Policy::defaults and Policy::dense_layers come from
/// make_policy(request).
void use_heads(const TunedProfile& profile, Request& request);

/// Throws Error (field profile) if the profile was made for another model, or has policies for another number of heads.
/// `model` is this model's name, `model_sha256` the result of model_hash().
void check_profile(const TunedProfile& profile, const std::string& model, const std::string& model_sha256,
                   const HeadCount& heads);

/// Returns a warning if the profile was made for another size, number of steps or token order.
std::string profile_warning(const TunedProfile& profile, const Plan& plan);

}  // namespace sparsereel::models
