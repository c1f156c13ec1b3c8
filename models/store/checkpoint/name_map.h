// Names that two programs give the same tensors. No torch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/store/checkpoint/moved_rows.h"

namespace sparsereel::models {

/// A name, and how the rows are placed that one of the two programs has under it; null: as the other one's.
struct PlacedName {
  std::string name;
  const MovedRows* rows = nullptr;
};

/// Pairs of layers, or of tensors: {"blocks.*.attn1.to_q", "blocks.*.self_attn.q"}. A * stands for a number, which is
/// the same in both; what follows a layer's name (".weight") stays. Of two that fit, the first one counts.
class NameMap {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  NameMap(Pairs pairs = {}) : pairs_(std::move(pairs)) {}
  /// With layers besides whose rows the second program has elsewhere.
  NameMap with_moved_rows(std::vector<MovedRows> moved) const {
    NameMap all = *this;
    all.moved_ = std::move(moved);
    return all;
  }

  /// The second program's name, for one of the first, and the other way round. A name of no pair stays as it is. Of
  /// layers whose rows one of the second program holds, first() is one.
  std::string second(const std::string& first) const { return placed_second(first).name; }
  std::string first(const std::string& second) const { return placed_firsts(second).front().name; }

  /// The same with the places of the rows: the first program's are parts of the second's. At least one.
  PlacedName placed_second(const std::string& first) const;
  std::vector<PlacedName> placed_firsts(const std::string& second) const;

 private:
  Pairs pairs_;
  std::vector<MovedRows> moved_;
};

/// How files of other programs name a component's tensors.
struct StoredNames {
  std::vector<NameMap> others = {};  // diffusers' names, and those of the model's authors, or of another program
  /// Words before every name of a file, of which several may follow each other. Of two that fit, the first one counts.
  /// The part's role is always one.
  std::vector<std::string> prefixes = {};
  std::vector<std::string> no_weights = {};  // what may lie among them
  /// Layers that diffusers alone calls otherwise in the last block: {"blocks.*.norm", "blocks.*.last_norm"}.
  NameMap::Pairs of_last_block = {};
};

}  // namespace sparsereel::models
