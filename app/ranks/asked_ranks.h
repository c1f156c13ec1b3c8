// How many ranks the user asks for, on which devices, and with which limits of time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/options/settings.h"
#include "app/ranks/launched.h"
#include "models/parallel/links.h"

namespace sparsereel::app {

/// What SPARSEREEL_GROUP asks for, words with commas between: how ranks work together where that is to be tested.
struct GroupChoice {
  bool of_one = false;   // "of-one": one rank goes the way of several
  bool sockets = false;  // "sockets": no NCCL; ranks may then share a card
};
GroupChoice find_group_choice(const Environment& environment);

/// SPARSEREEL_GROUP_SECONDS and SPARSEREEL_START_SECONDS, in place of the limits' own. Throws Error naming the
/// variable.
models::GroupLimits find_group_limits(const Environment& environment);

/// The device of each of `count` ranks of this host: see models::devices_of_ranks().
std::vector<std::string> devices_of_ranks_here(int64_t count, const std::string& device);

/// How many ranks make each video of these settings together: those of a launcher, or else --gpus. Throws Error as
/// find_launched().
int64_t ranks_of_video(const Settings& settings, const Environment& environment);

/// Returns true if this process is another rank than 0 of a command whose ranks make a video together: it prints
/// nothing, not even CLI11's errors. `words`: those behind the program's name, which a null ends.
bool is_silent_rank(const char* const* words, const Environment& environment);

/// CPU threads of each of so many processes that have this host's cores together.
int threads_of_each(int64_t processes);

}  // namespace sparsereel::app
