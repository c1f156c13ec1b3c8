// The tiny model's classifier: a small network that recognizes shape, color, background and motion in a clip. Also
// reads from a prompt what its video should show. The network is that of assets/tiny-training/judge.py, and the words
// of prompts are those of shapes.py there.
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
/// The traits that the classifier recognizes, under the names that its file gives to their layers.
constexpr std::array<std::string_view, kTraits> kTraitNames = {"shape", "colour", "background", "motion"};

/// For each trait, the index of its value (such as "circle") in the order of the classifier's training; -1 if unknown.
using Traits = std::array<int, kTraits>;

/// Returns how many values the trait can have.
size_t trait_values(size_t trait);

/// Returns the traits that the prompt describes. Looks for the words that shapes.py uses, like labels() in evaluate.py.
Traits traits_of(const std::string& prompt);

class Classifier {
 public:
  /// Reads the weights. Throws Error naming the file and a tensor that is missing, has a wrong shape or is unexpected.
  explicit Classifier(const std::filesystem::path& file);

  /// Returns the traits of a clip. `frames` are fp32, CPU, [F, H, W, 3] in 0..1, of any length and size; the classifier
  /// sees nine frames scaled to 64 x 64.
  Traits read(const at::Tensor& frames) const;

 private:
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }

  std::map<std::string, at::Tensor> weights_;  // fp32
};

/// Returns the file of the classifier in the folder MODEL-training beside the folder MODEL; empty if there is none.
std::filesystem::path classifier_beside(const std::filesystem::path& model);

/// Returns a JSON object that says, for each trait that the prompt describes (`told`), whether the video shows it
/// (`seen`): {"shape": true, "colour": false}.
nlohmann::json verdict(const Traits& told, const Traits& seen);

/// Counts the non-empty verdicts and returns the counts as a JSON object: {"prompts": 20, "right": 19, "shape": [20,
/// 20], ...}. "right" counts the verdicts that are right in every trait. Each trait has a list: how often it is right
/// and how often it is described.
nlohmann::json count_verdicts(const std::vector<nlohmann::json>& verdicts);

}  // namespace sparsereel::app::bench
