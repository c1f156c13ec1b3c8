// What `tune` found, as a YAML file that people can read: the options of a run, where it gains a policy for each layer
// and head, what was measured of both, and for which model and size. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attention/policies/head_search.h"
#include "attention/policies/policy.h"

namespace sparsereel::attention {

/// A head's policy with its relative L1 against full attention and its sparsity on the tuning set.
struct ProfileHead {
  HeadPolicy policy;
  double error = 0;
  double sparsity = 0;
};

/// What the profile was made with; its figures hold for these.
struct ProfileSetting {
  int64_t width = 0, height = 0, frames = 0, steps = 0;
  std::string token_order, device, dtype;
  bool operator==(const ProfileSetting&) const = default;
};

/// Whole videos of the tuning set against those of full attention; psnr is 0 where none was made.
struct ProfileQuality {
  double psnr = 0, ssim = 0;
  double psnr_lowest = 0;                // of a video
  double speedup = 0;                    // of a denoising step over the untuned policy
  double seconds = 0, full_seconds = 0;  // of a video's denoising, and by full attention
};

/// Steps and layers at the start that keep every block.
struct DenseStart {
  int64_t steps = 0;
  int64_t layers = 0;
  bool operator==(const DenseStart&) const = default;
};

struct Profile {
  std::string model;  // the folder's name
  std::string model_sha256;
  ProfileSetting made_with;
  std::map<std::string, std::string>
      settings;  // values of a run's options, by their names: whoever has these reads them
  ProfileQuality quality;
  // Of a policy for each head; without one the rest says nothing, and no file has it.
  Bounds bounds;
  double error = 0, sparsity = 0;  // means over the heads; of the sparsity, dense steps and layers included
  ProfileQuality untuned;
  double untuned_sparsity = 0;
  // As in Policy. A file of before these three were there means the published method, whatever the defaults are.
  Dropped dropped = Policy{}.dropped;
  Ranking ranking = Policy{}.ranking;
  int64_t cell = Policy{}.cell;
  int64_t selection_rows = Policy{}.selection_rows;
  DenseStart dense;
  std::vector<std::vector<ProfileHead>> heads;  // [layer][head], as many in each layer; or empty
};

/// Throws Error naming `file`, line and key: broken YAML, a key that is missing, unknown, given twice or of the wrong
/// kind, a value out of range. The fuzz entry.
Profile parse_profile(const std::string& text, const std::string& file);
/// What parse_profile() reads, with a comment that explains it.
std::string to_yaml(const Profile& profile);

/// All that a profile says of the policy; the rest, Policy::defaults among it, is Policy's own.
Policy policy_of(const Profile& profile);

}  // namespace sparsereel::attention
