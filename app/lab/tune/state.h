// The progress of a tuning run. It is saved in a file beside the profile, so that an interrupted run can resume.
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

/// The progress of the search for heads' policies.
struct HeadState {
  std::string setting;              // name of the candidate from whose policy the heads' searches start
  std::optional<double> topk = {};  // the candidate's topk
  HeadSearches searches = {};
  std::set<std::pair<int64_t, int64_t>> sampled = {};  // (prompt, step) pairs in which all heads were measured
  // `videos` and `speedup` were measured with the policies that were chosen after `compared_samples` samples. Once
  // there are more samples, both are invalid.
  int64_t compared_samples = 0;
  Videos videos = {};
  double speedup = 0;  // how many times as fast a step is as with one policy for all heads; 0 if not timed
};

struct TuneState {
  std::string key;                        // hash of everything that the search depends on
  std::map<int64_t, at::Tensor> latents;  // by prompt: final latents of full attention, CPU, fp32
  Rows steps;                             // the timed kinds of steps, as rows of `bench pipeline`
  std::map<std::string, Videos> videos;   // by the name of the candidate
  HeadState heads;

  /// Returns the number of videos, without those of full attention.
  int64_t video_count() const;
  /// Returns in how many calls the least measured head was measured.
  int64_t least_calls() const;
  /// Saves the state. The write is atomic.
  void save(const std::filesystem::path& path) const;
};

/// Returns the file for the best result if it misses the goal: for "p.yaml" it is "p.missed.yaml".
std::filesystem::path missed_beside(const std::filesystem::path& profile);

/// The sizes of this search, which a saved search must match.
struct SearchLimits {
  size_t layers = 0, heads = 0;  // layers and heads of the model
  int64_t prompts = 0, steps = 0;
  std::vector<int64_t> latents;  // shape of each prompt's latents
};

/// Returns the files beside the profile that hold a search, and the next free name for such a file.
std::vector<std::filesystem::path> states_beside(const std::filesystem::path& profile);

/// The saved or new state of this search, and its file. For "profile.yaml", its file is "profile.yaml.search", or
/// "profile.yaml.search-2" and so on.
struct OwnState {
  std::filesystem::path path;                 // file of the state with this key, else the first free name
  TuneState state;                            // the state with this key, else an empty one
  std::vector<std::filesystem::path> others;  // files of other searches that were read before `path`; they are kept
};

/// Makes the search that each head starts with, for the topk of the candidate.
using NewHead = std::function<attention::HeadSearch(std::optional<double> topk)>;

/// Returns the saved state with this key, or a new state. Throws Error for a damaged file.
OwnState find_state(const std::filesystem::path& profile, const std::string& key, const NewHead& new_head,
                    const SearchLimits& limits);

}  // namespace sparsereel::app::tuning
