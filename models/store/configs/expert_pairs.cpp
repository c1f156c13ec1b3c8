// Compares files of experts by name, format and distance.
#include "models/store/configs/expert_pairs.h"

#include <algorithm>
#include <iterator>

#include "models/store/checkpoint/expert_partner.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using FoundPartRule = bool (*)(const FoundPart&, const FoundPart&);

bool have_one_name(const FoundPart& first, const FoundPart& second) {
  return name_without_expert(first.file) == name_without_expert(second.file);
}

bool have_one_format(const FoundPart& first, const FoundPart& second) {
  return first.format.name == second.format.name;
}

std::vector<FoundPart> that_match(const FoundPart& expert, const std::vector<FoundPart>& others, FoundPartRule rule) {
  std::vector<FoundPart> matching;
  std::ranges::copy_if(others, std::back_inserter(matching), [&](const FoundPart& each) { return rule(expert, each); });
  return matching;
}

/// Returns those of `others` whose folders are nearest to the expert's folder.
std::vector<FoundPart> nearest_ones(const FoundPart& expert, std::vector<FoundPart> others) {
  const auto distance = [&](const FoundPart& other) { return folders_between(expert.file, other.file); };
  std::ranges::stable_sort(others, {}, distance);
  const auto farther = [&](const FoundPart& other) { return distance(other) > distance(others.front()); };
  others.erase(std::ranges::find_if(others, farther), others.end());
  return others;
}

void take_pairs(ExpertPairs& result, std::vector<FoundPart>& high, std::vector<FoundPart>& low, FoundPartRule rule) {
  std::vector<FoundPart> left;
  std::vector<fs::path> taken;
  for (const FoundPart& each : high) {
    const std::vector<FoundPart> partners = nearest_ones(each, that_match(each, low, rule));
    if (partners.empty()) left.push_back(each);
    for (const FoundPart& partner : partners) {
      result.pairs.emplace_back(each, partner);
      taken.push_back(partner.file);
    }
  }
  high = std::move(left);
  std::erase_if(low, [&](const FoundPart& each) { return std::ranges::count(taken, each.file) > 0; });
}

}  // namespace

size_t folders_between(const fs::path& first, const fs::path& second) {
  const auto [one, two] = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
  return static_cast<size_t>(std::distance(one, first.end()) + std::distance(two, second.end()));
}

ExpertPairs pair_experts(std::vector<FoundPart> high, std::vector<FoundPart> low) {
  ExpertPairs result;
  take_pairs(result, high, low, have_one_name);
  take_pairs(result, high, low, have_one_format);
  if (high.size() == 1 && low.size() == 1) {
    result.pairs.emplace_back(std::move(high.front()), std::move(low.front()));
    return result;
  }
  result.alone = std::move(high);
  std::ranges::move(low, std::back_inserter(result.alone));
  return result;
}

std::vector<FoundPart> partners_of(const FoundPart& expert, const std::vector<FoundPart>& others) {
  for (const FoundPartRule rule : {have_one_name, have_one_format})
    if (auto matching = that_match(expert, others, rule); !matching.empty())
      return nearest_ones(expert, std::move(matching));
  return others;
}

}  // namespace sparsereel::models
