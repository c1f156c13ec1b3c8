// Turns merged settings into a request, by the same steps for the program and the library. No torch.
#pragma once

#include <functional>
#include <optional>

#include "models/request/request.h"
#include "models/request/settings.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::models {

/// Adds the options of the file that `profile` names. Removes the options that an earlier call added. With `attention:
/// full`, a run is exact and no profile is read. Throws Error if the file is not a profile.
void add_profile(Settings& settings);

/// Reads the fields of a request from settings, except fields for which `takes` returns false. Leaves out a random seed
/// and the policies that a profile has for each head.
Request read_request(const Settings& settings, const std::function<bool(const std::string& key)>& takes = {});

/// Returns the profile that the setting `profile` names; nothing if there is none. Sets the request's policy for each
/// head if the profile has one, unless attention is quantized or a stronger setting selects blocks for all heads.
std::optional<TunedProfile> apply_profile(const Settings& settings, Request& request);

/// Returns true if a run in this mode is exact: its attention is full, and no profile asked for full attention. A
/// profile then has no effect.
bool is_exact(const Settings& settings, attention::Mode mode);

}  // namespace sparsereel::models
