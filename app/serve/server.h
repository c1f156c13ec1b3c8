// A server: its parts, and how they begin and end.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/options/options.h"
#include "app/serve/http.h"

namespace sparsereel::app::serve {

struct ServeOptions {
  HttpOptions http;
  std::vector<std::string> allowed_hosts;  // further names of this server that Host headers may hold
  std::filesystem::path key_file;          // empty if everybody is let in
  bool no_auth = false;                    // the user accepts that others on the network need no key
  std::filesystem::path folder = "videos-served";
  int64_t gpus_per_video = 1;  // how many of --gpus make a video together
  int64_t queue = 100;         // how many videos may wait
  std::string keep;            // the rule, a text for parse_keep_rule()
  std::filesystem::path lora_dir, profile_dir;
};

/// Serves until a signal comes. Throws Error if the options, the folder or the model cannot be used. `settings` are the
/// merged settings of the command.
void serve(const ServeOptions& options, const Settings& settings);

}  // namespace sparsereel::app::serve
