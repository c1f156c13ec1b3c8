// The result of `tune` as a readable YAML file: options of a run and, if the tuner chose them, a policy for each head
// of each layer. It also holds what was measured with them, and the model and video size for which they were found. No
// torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attention/policies/head_search.h"
#include "attention/policies/policy.h"

namespace sparsereel::attention {

/// A head's policy, and what was measured with it on the tuning prompts: the relative L1 error against full attention,
/// and the sparsity.
struct ProfileHead {
  HeadPolicy policy;
  double error = 0;
  double sparsity = 0;
};

/// The conditions under which a profile was made. The profile's figures hold only for these conditions.
struct ProfileSetting {
  int64_t width = 0, height = 0, frames = 0, steps = 0;
  std::string token_order, device, dtype;
  bool operator==(const ProfileSetting&) const = default;
};

/// Quality of whole videos of the tuning prompts, compared with full attention. psnr is 0 if no video was made.
struct ProfileQuality {
  double psnr = 0, ssim = 0;
  double psnr_lowest = 0;                // lowest PSNR of a single video
  double speedup = 0;                    // speed of a denoising step relative to the untuned policy
  double seconds = 0, full_seconds = 0;  // seconds to denoise a video, with this profile and with full attention
};

/// How many of the first steps, and how many of the first layers, compute every block.
struct DenseStart {
  int64_t steps = 0;
  int64_t layers = 0;
  bool operator==(const DenseStart&) const = default;
};

struct Profile {
  std::string model;  // name of the model's folder
  std::string model_sha256;
  ProfileSetting made_with;
  std::map<std::string, std::string> settings;  // options of a run: name and value
  ProfileQuality quality;
  // The fields below describe a policy for each head. A profile without such policies does not use them, and its file
  // does not contain them.
  Bounds bounds;
  double error = 0, sparsity = 0;  // averages over the heads; sparsity includes dense steps and layers
  ProfileQuality untuned;
  double untuned_sparsity = 0;
  // For these fields see Policy. A file that has none of the keys dropped, select and cell was made with SpargeAttn's
  // published method: Dropped::none and Ranking::mass.
  Dropped dropped = Policy{}.dropped;
  Ranking ranking = Policy{}.ranking;
  int64_t cell = Policy{}.cell;
  int64_t selection_rows = Policy{}.selection_rows;
  DenseStart dense;
  std::vector<std::vector<ProfileHead>> heads;  // [layer][head], equally many heads in each layer; may be empty
};

/// Reads a profile. Throws Error for broken YAML, for a value out of range, and for a key that is missing, unknown,
/// given twice or of the wrong kind. The message names `file`, the line and the key. The fuzz test calls this function.
Profile parse_profile(const std::string& text, const std::string& file);
/// Returns YAML that parse_profile() reads, with comments that explain it.
std::string to_yaml(const Profile& profile);

/// Returns the policy of the profile. Fields that a profile does not have, such as Policy::defaults, keep their
/// defaults.
Policy policy_of(const Profile& profile);

}  // namespace sparsereel::attention
