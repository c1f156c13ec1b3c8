// What a tuning run has found so far, in a file beside the profile: an interrupted run goes on from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/lab/measure/table.h"
#include "app/lab/tune/head_trials.h"
#include "app/lab/tune/setting_search.h"

namespace sparsereel::app::tuning {

using Videos = std::map<size_t, Seen>;  // by prompt

/// What was found of a policy for each head.
struct HeadState {
  std::string setting;              // the candidate's name whose selection they start from
  std::optional<double> topk = {};  // its own
  HeadSearches searches = {};
  std::set<std::pair<int64_t, int64_t>> sampled = {};  // prompt, step: done
  // Of the choice that `compared_samples` samples led to; with others they mean nothing.
  int64_t compared_samples = 0;
  Videos videos = {};
  double speedup = 0;  // of a step over one with the same share in every head; 0: not timed
};

struct TuneState {
  std::string key;                        // of everything that the search depends on
  std::map<int64_t, at::Tensor> latents;  // prompt -> final latents of full attention, CPU fp32
  Rows steps;                             // of one step each, as `bench pipeline` has them
  std::map<std::string, Videos> videos;   // by the candidate's name
  HeadState heads;

  /// Without those of full attention.
  int64_t video_count() const;
  /// Calls that every head was measured in.
  int64_t least_calls() const;
  /// Atomic.
  void save(const std::filesystem::path& path) const;
};

/// Where the best that was found stays when it misses the floor: "p.yaml" -> "p.missed.yaml"
std::filesystem::path missed_beside(const std::filesystem::path& profile);

/// What a saved search must fit.
struct SearchLimits {
  size_t layers = 0, heads = 0;  // of the model
  int64_t prompts = 0, steps = 0;
  std::vector<int64_t> latents;  // the shape of each
};

/// Every file beside the profile that a search may be kept in.
std::vector<std::filesystem::path> states_beside(const std::filesystem::path& profile);

/// The state of a search: "profile.yaml" -> "profile.yaml.search", or "profile.yaml.search-2" and so on.
struct OwnState {
  std::filesystem::path path;                 // of the state of this key; else the first that is free
  TuneState state;                            // that of this key; else an empty one
  std::vector<std::filesystem::path> others;  // of other keys, which stay, before the own one
};

/// What each head starts from beside this topk.
using NewHead = std::function<attention::HeadSearch(std::optional<double> topk)>;

/// Throws Error for a damaged file.
OwnState find_state(const std::filesystem::path& profile, const std::string& key, const NewHead& new_head,
                    const SearchLimits& limits);

}  // namespace sparsereel::app::tuning
