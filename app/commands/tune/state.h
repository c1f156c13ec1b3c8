// What a tuning run has found so far, in a file beside the profile: an interrupted run goes on from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/tune/head_trials.h"
#include "attention/policies/dense_search.h"

namespace sparsereel::app::tuning {

/// Means over whole videos against those of full attention, and over their denoising steps.
struct VideoFigures {
  double psnr = 0, ssim = 0;
  double step_seconds = 0;
};

/// A choice of dense steps and layers, and what its videos gave.
struct VideoCheck {
  attention::DenseStart start;
  VideoFigures figures;
  double untuned_step_seconds = 0;  // of the untuned policy's steps, which took turns with these
};

struct TuneState {
  std::string key;  // of everything that the search depends on
  HeadSearches heads;
  std::set<std::pair<int64_t, int64_t>> sampled;  // prompt, step: done
  std::map<int64_t, at::Tensor> latents;          // prompt -> final latents of full attention, CPU fp32
  double full_step_seconds = 0;
  // Of the choice that `checked_samples` samples led to; with others they mean nothing.
  int64_t checked_samples = 0;
  int64_t checked_videos = 0;
  std::optional<VideoFigures> untuned;
  std::vector<VideoCheck> checks;

  /// Nothing: no videos with that start were made.
  const VideoCheck* check_of(const attention::DenseStart& start) const;
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

/// `search`: what each head starts from. Throws Error for a damaged file.
OwnState find_state(const std::filesystem::path& profile, const std::string& key, const attention::HeadSearch& search,
                    const SearchLimits& limits);

}  // namespace sparsereel::app::tuning
