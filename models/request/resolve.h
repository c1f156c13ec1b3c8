// From merged settings to what is asked of one video: the same steps for the program and the library. No torch.
#pragma once

#include <functional>
#include <optional>

#include "models/request/request.h"
#include "models/request/settings.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::models {

/// Adds the options of the file of `profile`, in place of those that it added before: none beside `attention: full`,
/// with which alone a run is exact. Throws Error where the file is no profile.
void add_profile(Settings& settings);

/// The fields of a request as they are given, those that `takes` refuses left out: no random seed, no profile's heads.
Request read_request(const Settings& settings, const std::function<bool(const std::string& key)>& takes = {});

/// The profile of `profile`; nothing where none is given. The request gets its policy for each head, unless one for
/// all is given beside it.
std::optional<TunedProfile> apply_profile(const Settings& settings, Request& request);

/// Whether a run in this mode is exact: its attention is full, and no profile asked for that. A profile then has no
/// effect.
bool is_exact(const Settings& settings, attention::Mode mode);

}  // namespace sparsereel::models
