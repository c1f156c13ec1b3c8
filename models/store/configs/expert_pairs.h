// Pairs the files of the two experts of a model, for high and low noise. No torch.
#pragma once

#include <utility>
#include <vector>

#include "models/store/checkpoint/found_parts.h"

namespace sparsereel::models {

struct ExpertPairs {
  // Each pair is the file for high noise, then the file for low noise.
  std::vector<std::pair<FoundPart, FoundPart>> pairs = {};
  std::vector<FoundPart> alone = {};  // files without a partner
};

/// Pairs files of one model: first files whose names differ only in the word for the expert, then files of the same
/// format. If several match, the nearest folder decides. If one file of each expert is left, these two are a pair.
ExpertPairs pair_experts(std::vector<FoundPart> high, std::vector<FoundPart> low);

/// Returns the files among `others`, which are for the other expert, that belong to `expert` by the rules of
/// pair_experts(). Returns several if the rules do not decide.
std::vector<FoundPart> partners_of(const FoundPart& expert, const std::vector<FoundPart>& others);

/// Returns the number of path components that two paths do not share.
size_t folders_between(const std::filesystem::path& first, const std::filesystem::path& second);

}  // namespace sparsereel::models
