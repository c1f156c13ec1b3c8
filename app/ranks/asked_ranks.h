// Reads how many ranks the user asks for, on which devices, and with which time limits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/options/option_table.h"
#include "app/ranks/launched.h"
#include "models/parallel/links.h"

namespace sparsereel::app {

/// The way in which ranks work together, for tests. SPARSEREEL_GROUP gives it as words separated by commas.
struct GroupChoice {
  bool of_one = false;   // "of-one": a single rank uses the code for several ranks
  bool sockets = false;  // "sockets": no NCCL; ranks may then share a GPU
};
GroupChoice find_group_choice(const Environment& environment);

/// Returns the time limits. SPARSEREEL_GROUP_SECONDS and SPARSEREEL_START_SECONDS replace their defaults. Throws Error
/// naming the variable.
models::GroupLimits find_group_limits(const Environment& environment);

/// Returns the device of each of `count` ranks of this host: see models::devices_of_ranks().
std::vector<std::string> devices_of_ranks_here(int64_t count, const std::string& device);

/// The names of the devices that make one video together: "cuda:0" and so on.
using GpusOfAVideo = std::vector<std::string>;
/// Joins the names: "cuda:0+cuda:1".
std::string name_of_gpus(const GpusOfAVideo& gpus);

/// Returns the devices of each concurrent video, from --gpus and --gpus-per-video. Throws Error if --gpus is not a
/// multiple of `gpus_per_video`, and like models::devices_of_ranks().
std::vector<GpusOfAVideo> gpus_of_videos(const Settings& settings, int64_t gpus_per_video);

/// Returns how many ranks make each video of these settings together: the number of ranks that a launcher started, or
/// else --gpus. Throws Error like find_launched().
int64_t ranks_of_video(const Settings& settings, const Environment& environment);

/// Returns true if this process is a rank other than 0 of a command whose ranks make a video together. Such a rank
/// prints nothing, not even CLI11's errors. `words` are the words of the command line after the program's name; a null
/// ends them.
bool is_silent_rank(const char* const* words, const Environment& environment);

/// Returns how many CPU threads each process gets if `processes` of them share the cores of this host.
int threads_of_each(int64_t processes);

}  // namespace sparsereel::app
