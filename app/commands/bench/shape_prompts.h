// What a prompt of the tiny model tells: the words of assets/tiny-training/shapes.py. No torch.
#pragma once

#include <array>
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

/// What the prompt says of each trait (evaluate.py's labels()).
Traits traits_of(const std::string& prompt);

}  // namespace sparsereel::app::bench
