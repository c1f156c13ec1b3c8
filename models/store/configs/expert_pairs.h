// Pairs the files for high and low noise that belong together. No torch.
#pragma once

#include <utility>
#include <vector>

#include "models/store/checkpoint/found_parts.h"

namespace sparsereel::models {

struct ExpertPairs {
  std::vector<std::pair<FoundPart, FoundPart>> pairs = {};  // for high noise, for low noise
  std::vector<FoundPart> alone = {};
};

/// Pairs files of one model: by their names, then by their formats. If one file of each kind is left, these two are a
/// pair.
ExpertPairs pair_experts(std::vector<FoundPart> high, std::vector<FoundPart> low);

/// Returns the files among `others` (files for the other expert) that belong to `expert`, by the rules of
/// pair_experts(). Returns several if nothing decides.
std::vector<FoundPart> partners_of(const FoundPart& expert, const std::vector<FoundPart>& others);

/// Returns the number of path components that differ between two files.
size_t folders_between(const std::filesystem::path& first, const std::filesystem::path& second);

}  // namespace sparsereel::models
