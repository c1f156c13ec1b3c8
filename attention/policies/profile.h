// The result of `tune` as a readable YAML file: the options of a run, a policy for each layer and head if that gains,
// what was measured with them, and the model and video size for which they were found. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attention/policies/head_search.h"
#include "attention/policies/policy.h"

namespace sparsereel::attention {

/// A head's policy, and its relative L1 error against full attention and its sparsity on the tuning set.
struct ProfileHead {
  HeadPolicy policy;
  double error = 0;
  double sparsity = 0;
};

/// The setting for which a profile was made: its figures hold only for this setting.
struct ProfileSetting {
  int64_t width = 0, height = 0, frames = 0, steps = 0;
  std::string token_order, device, dtype;
  bool operator==(const ProfileSetting&) const = default;
};

/// Quality of whole videos of the tuning set against full attention. psnr is 0 if no video was made.
struct ProfileQuality {
  double psnr = 0, ssim = 0;
  double psnr_lowest = 0;                // lowest PSNR of a single video
  double speedup = 0;                    // speed of a denoising step relative to the untuned policy
  double seconds = 0, full_seconds = 0;  // seconds to denoise a video, with this profile and with full attention
};

/// How many steps at the start, and how many of the first layers, compute every block.
struct DenseStart {
  int64_t steps = 0;
  int64_t layers = 0;
  bool operator==(const DenseStart&) const = default;
};

struct Profile {
  std::string model;  // name of the folder
  std::string model_sha256;
  ProfileSetting made_with;
  std::map<std::string, std::string> settings;  // values of a run's options, by option name
  ProfileQuality quality;
  // The fields below describe a policy for each head. If there is none, they are not used and not in the file.
  Bounds bounds;
  double error = 0, sparsity = 0;  // averages over the heads; sparsity includes dense steps and layers
  ProfileQuality untuned;
  double untuned_sparsity = 0;
  // See Policy. A file that has none of dropped, select and cell was made with the published method: Dropped::none and
  // Ranking::mass.
  Dropped dropped = Policy{}.dropped;
  Ranking ranking = Policy{}.ranking;
  int64_t cell = Policy{}.cell;
  int64_t selection_rows = Policy{}.selection_rows;
  DenseStart dense;
  std::vector<std::vector<ProfileHead>> heads;  // [layer][head], equally many in each layer; or empty
};

/// Reads a profile. Throws Error, naming `file`, line and key, for broken YAML or a value out of range. The same holds
/// for a key that is missing, unknown, given twice or of the wrong kind. The fuzz test enters here.
Profile parse_profile(const std::string& text, const std::string& file);
/// Returns YAML that parse_profile() reads, with comments that explain it.
std::string to_yaml(const Profile& profile);

/// Returns the policy of the profile. Fields that a profile does not have, such as Policy::defaults, keep their
/// defaults.
Policy policy_of(const Profile& profile);

}  // namespace sparsereel::attention
