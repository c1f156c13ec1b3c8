// Reads a profile, and compares it with the model and the plan.
#include "models/request/tuned_profile.h"

#include "hilbert/error.h"
#include "models/files/regular_file.h"
#include "models/files/sha256.h"
#include "models/request/asked_policy.h"
#include "models/request/fields.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

std::string text_of(const HeadCount& count) {
  const auto counted = [](int64_t number, const char* one) {
    return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
  };
  return counted(count.layers, "layer") + " of " + counted(count.heads, "head");
}

}  // namespace

TunedProfile read_profile(const fs::path& file) {
  const char* remedy = "name a profile that 'sparsereel tune' made";
  const auto profile = std::make_shared<const attention::Profile>(
      attention::parse_profile(read_regular_file(file, kMostYamlBytes, remedy), file.string()));
  return {
      .file = file, .content = profile, .sha256 = sha256(attention::to_yaml(*profile)), .heads = heads_of(*profile)};
}

HeadCount heads_of(const attention::Profile& profile) {
  return {.layers = static_cast<int64_t>(profile.heads.size()),
          .heads = static_cast<int64_t>(profile.heads.empty() ? 0 : profile.heads.front().size())};
}

bool is_of_a_preset(const Option& option) {
  return has_no_effect(option, NoEffect::every_block) || has_no_effect(option, NoEffect::no_reuse) ||
         option.key == "attention" || option.key == "weights" || option.key == "exact_steps";
}

std::map<std::string, std::string> options_of(const TunedProfile& profile) {
  std::map<std::string, std::string> options = profile.content->settings;
  for (const auto& [name, value] : options)
    if (const Field* field = find_field(name); field == nullptr || !is_of_a_preset(option_of(*field)))
      throw bad_file(profile.file, "settings." + name + " is not an option that a profile may set",
                     "correct the file, or make it again with 'sparsereel tune'");
  if (!profile.content->heads.empty()) {
    options["dense_steps"] = std::to_string(profile.content->dense.steps);
    options["dense_layers"] = std::to_string(profile.content->dense.layers);
  }
  return options;
}

void use_heads(const TunedProfile& profile, Request& request) {
  const attention::Policy untuned = make_policy(request);
  attention::Policy& policy = request.policy.emplace(attention::policy_of(*profile.content));
  policy.defaults = untuned.defaults;
  policy.dense_layers = untuned.dense_layers;
  request.policy_file = profile.file.string();
}

void check_profile(const TunedProfile& profile, const std::string& model, const std::string& model_sha256,
                   const HeadCount& heads) {
  const std::string file = profile.file.string();
  if (profile.content->model_sha256 != model_sha256)
    throw bad_option("profile",
                     file + " was made for another model (" + profile.content->model +
                         "): the hashes of configs and weight headers differ from those of " + model,
                     "use that model, or make a profile of this one with 'sparsereel tune'");
  if (profile.by_head() && profile.heads != heads)
    throw bad_option("profile", file + " has " + text_of(profile.heads) + ", the model has " + text_of(heads),
                     "the file was changed after it was made: make it again with 'sparsereel tune'");
}

std::string profile_warning(const TunedProfile& profile, const Plan& plan) {
  const attention::ProfileSetting& made = profile.content->made_with;
  std::string differs;
  const auto compare = [&](const std::string& name, const std::string& then, const std::string& now) {
    if (then != now)
      differs.append(differs.empty() ? "" : ", ")
          .append(name)
          .append(" ")
          .append(then)
          .append(" instead of ")
          .append(now);
  };
  compare("width", std::to_string(made.width), std::to_string(plan.width));
  compare("height", std::to_string(made.height), std::to_string(plan.height));
  compare("frames", std::to_string(made.frames), std::to_string(plan.num_frames));
  compare("steps", std::to_string(made.steps), std::to_string(plan.num_inference_steps));
  compare("token order", made.token_order, std::string(hilbert::name(plan.token_order)));
  if (differs.empty()) return {};
  return profile.file.string() + " was made with other settings (" + differs +
         "): its error bounds may not hold in this run";
}

}  // namespace sparsereel::models
