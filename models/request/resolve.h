// Turns merged settings into a request, and a request into a plan, in which every value is decided for one model. The
// program and the library both use these functions. This header needs no torch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "models/request/request.h"
#include "models/request/settings.h"
#include "models/request/spec.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::models {

/// Adds the options of the file that the setting `profile` names. First removes the options that an earlier call added.
/// With `attention: full`, a run is exact and no profile is read. Throws Error if the file is not a profile.
void add_profile(Settings& settings);

/// Reads the fields of a request from settings, except fields for which `takes` returns false. Does not read a random
/// seed, nor the policies that a profile has for each head.
Request read_request(const Settings& settings, const std::function<bool(const std::string& key)>& takes = {});

/// Returns the profile that the setting `profile` names; nothing if there is none. Sets the request's policy for each
/// head if the profile has one, unless attention is quantized or a stronger setting selects blocks for all heads.
std::optional<TunedProfile> apply_profile(const Settings& settings, Request& request);

/// Returns a plan in which every member is set that needs only the request and the model. Members that decide the
/// pipeline, and the attention mode, stay unset. Throws Error naming the field that the model does not accept.
Plan resolve_request(const Request& request, const ModelSpec& spec);

/// Returns how many tokens the plan's images add to the transformer's sequence as keyframes.
int64_t keyframe_tokens(const Plan& plan, const ModelSpec& spec);

struct GivenImages {
  bool first = false, last = false;
};

/// Throws Error (field image or last_image) if the model cannot use an image in a video of `latent_frames`, or needs an
/// image that is missing.
void check_images(const GivenImages& images, int64_t latent_frames, const ModelSpec& spec);

SchedulerConfig scheduler_config(const Plan& plan, const ModelSpec& spec);
/// Returns the config of the sound's scheduler, for a model that makes sound.
SchedulerConfig sound_scheduler_config(const Plan& plan, const ModelSpec& spec);

}  // namespace sparsereel::models
