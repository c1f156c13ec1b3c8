// A profile of `tune` as a run takes it: its options, its policy, and whether it is the model's. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "attention/policies/profile.h"
#include "models/request/fields.h"
#include "models/request/plan.h"
#include "models/request/spec.h"

namespace sparsereel::models {

struct TunedProfile {
  std::filesystem::path file;
  std::string sha256;               // of its content
  std::string model, model_sha256;  // that it was made for
  HeadCount heads;                  // that it has policies for, which hold in this run; none: one policy for all
  attention::ProfileSetting made_with;

  bool by_head() const { return heads.layers > 0; }
};

/// Throws Error naming the file where it is no profile.
attention::Profile read_profile(const std::filesystem::path& file);

/// What is known of the profile in that file.
TunedProfile describe_profile(const std::filesystem::path& file, const attention::Profile& profile);

/// Whether a preset, or a profile, may decide about it.
bool is_of_a_preset(const Field& field);

/// Its options by their names. Throws Error naming the file where one is none that a profile has a say in.
std::map<std::string, std::string> options_of(const attention::Profile& profile, const std::filesystem::path& file);

/// Gives the request the policy for each head that the profile in this file has. Of what is given for all heads, dense
/// layers and what the profile leaves to Policy::defaults hold.
void use_heads(const std::filesystem::path& file, const attention::Profile& profile, Request& request);

/// Throws Error (field profile) where it was made for another model than this one, or has policies for other heads.
/// `model`: its name; `model_sha256` as model_hash() makes it.
void check_profile(const TunedProfile& profile, const std::string& model, const std::string& model_sha256,
                   const HeadCount& heads);

/// What to know where the profile was made for another size, number of steps or order of the tokens; empty: nothing.
std::string profile_warning(const TunedProfile& profile, const Plan& plan);

}  // namespace sparsereel::models
