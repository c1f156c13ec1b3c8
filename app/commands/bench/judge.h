// The tiny model's judge: a small network that reads shape, colour, background and motion off a clip
// (assets/tiny-training/judge.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/shape_prompts.h"

namespace sparsereel::app::bench {

class Judge {
 public:
  /// Throws Error naming the file and the tensor that is missing, misshaped or too much.
  explicit Judge(const std::filesystem::path& file);

  /// frames: fp32 CPU [F, H, W, 3] in 0..1, of any length and size: it looks at nine frames of 64 x 64.
  Traits read(const at::Tensor& frames) const;

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }

  std::map<std::string, at::Tensor> weights_;  // fp32
};

/// The judge that lies beside a model, in a folder of its name and "-training"; empty where there is none.
std::filesystem::path judge_beside(const std::filesystem::path& model);

/// What a prompt told and what the judge saw in its video.
struct Verdict {
  Traits told = {-1, -1, -1, -1}, seen = {-1, -1, -1, -1};

  bool tells(size_t trait) const { return told.at(trait) >= 0; }
  bool right(size_t trait) const { return told.at(trait) == seen.at(trait); }
  /// Whether nothing that the prompt tells is wrong.
  bool all_right() const;
};

/// Over prompts that tell something.
struct VerdictCount {
  int64_t prompts = 0, right = 0;  // right: in all that the prompt tells
  std::array<int64_t, kTraits> told = {}, trait_right = {};

  void add(const Verdict& verdict);
  double share() const { return prompts > 0 ? static_cast<double>(right) / static_cast<double>(prompts) : 0; }
};

}  // namespace sparsereel::app::bench
