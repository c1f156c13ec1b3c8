// Names that two programs give the same tensors. No torch.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sparsereel::models {

/// Pairs of layers, or of tensors: {"blocks.*.attn1.to_q", "blocks.*.self_attn.q"}. A * stands for a number, which is
/// the same in both; what follows a layer's name (".weight") stays. Of two that fit, the first one counts.
class NameMap {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  NameMap(Pairs pairs = {}) : pairs_(std::move(pairs)) {}

  /// The second program's name, for one of the first, and the other way round. A name of no pair stays as it is.
  std::string second(const std::string& first) const;
  std::string first(const std::string& second) const;

 private:
  Pairs pairs_;
};

/// How files of other programs name a component's tensors.
struct StoredNames {
  std::vector<NameMap> others = {};        // diffusers' names, and those of the model's authors, or of another program
  std::vector<std::string> prefixes = {};  // of which one may stand before every name of a file; the longest first
  std::vector<std::string> no_weights = {};  // what may lie among them
};

}  // namespace sparsereel::models
