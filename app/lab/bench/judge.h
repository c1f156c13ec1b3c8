// The tiny model's judge: a small network that reads shape, colour, background and motion off a clip, and what prompts
// tell of them (assets/tiny-training/judge.py and shapes.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::app::bench {

constexpr size_t kTraits = 4;
/// What the judge reads off a clip, as its heads are called.
constexpr std::array<std::string_view, kTraits> kTraitNames = {"shape", "colour", "background", "motion"};

/// For each trait the index of its value, in the order in which the judge was trained; -1: unknown.
using Traits = std::array<int, kTraits>;

/// How many values a trait has.
size_t trait_values(size_t trait);

/// What the prompt says of each trait, by the words of shapes.py (evaluate.py's labels()).
Traits traits_of(const std::string& prompt);

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

/// What of the traits that a prompt tells was seen in its video: {"shape": true, "colour": false}.
nlohmann::json verdict(const Traits& told, const Traits& seen);

/// Over verdicts that tell something: {"prompts": 20, "right": 19, "shape": [20, 20], ...}: how many are right in all
/// that they tell; of each trait how often it is right, and told.
nlohmann::json count_verdicts(const std::vector<nlohmann::json>& verdicts);

}  // namespace sparsereel::app::bench
