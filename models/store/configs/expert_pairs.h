// Which files for high and for low noise belong together. No torch.
#pragma once

#include <utility>
#include <vector>

#include "models/store/checkpoint/found_parts.h"

namespace sparsereel::models {

struct ExpertPairs {
  std::vector<std::pair<FoundPart, FoundPart>> pairs = {};  // for high noise, for low noise
  std::vector<FoundPart> alone = {};
};

/// Pairs files of one model by their names; where no name fits, by their format; where one of each is left, these two.
ExpertPairs pair_experts(std::vector<FoundPart> high, std::vector<FoundPart> low);

/// Of files for the other expert those that belong to this one, by the same rules. Several where nothing decides.
std::vector<FoundPart> partners_of(const FoundPart& expert, const std::vector<FoundPart>& others);

/// How many folders lie between two files.
size_t folders_between(const std::filesystem::path& first, const std::filesystem::path& second);

}  // namespace sparsereel::models
