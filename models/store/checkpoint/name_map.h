// Translates between the names that two programs give to the same tensors. No torch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/store/checkpoint/moved_rows.h"
#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

/// A name, and the place of its rows in the other program's tensor. `rows` is null if both tensors are the same.
struct PlacedName {
  std::string name;
  const MovedRows* rows = nullptr;
};

/// Pairs of layers or tensors: {"blocks.*.attn1.to_q", "blocks.*.self_attn.q"}. A * stands for a number, equal in both.
/// Text after a layer's name (".weight") is kept. If two pairs match, the first one counts.
class NameMap {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  NameMap(Pairs pairs = {}) : pairs_(std::move(pairs)) {}
  /// Returns a copy that also has layers whose rows the second program keeps elsewhere.
  NameMap with_moved_rows(std::vector<MovedRows> moved) const {
    NameMap all = *this;
    all.moved_ = std::move(moved);
    return all;
  }

  /// Translates a name of the first program to the second program's name, and back. A name without a pair is returned
  /// as it is. If a tensor of the second program holds rows of several layers, first() returns one of them.
  std::string second(const std::string& first) const { return placed_second(first).name; }
  std::string first(const std::string& second) const { return placed_firsts(second).front().name; }

  /// Translates names, with the places of rows: a tensor of the first program may be a part of a tensor of the second.
  /// placed_firsts() returns at least one name.
  PlacedName placed_second(const std::string& first) const;
  std::vector<PlacedName> placed_firsts(const std::string& second) const;

 private:
  Pairs pairs_;
  std::vector<MovedRows> moved_;
};

/// The names of a component's tensors in other programs' files.
struct StoredNames {
  std::vector<NameMap> others = {};  // maps from diffusers' names to names of the authors or of another program
  /// Returns the index of the map in `others` that a file follows, for programs that give the same names to rows in
  /// different orders. `tensors` have the names of the file without prefixes. Null if the names alone tell. LoRAs
  /// follow the first map that knows their names.
  size_t (*choose)(const TensorTable& tensors, const StoredWeights& weights) = nullptr;
  /// Words before every name of a file; several may follow each other. If two match, the first one counts. The part's
  /// role is always among them.
  std::vector<std::string> prefixes = {};
  std::vector<std::string> no_weights = {};  // tensors without weights that may be present
  /// Layers that have another name in the last block, in diffusers only: {"blocks.*.norm", "blocks.*.last_norm"}.
  NameMap::Pairs of_last_block = {};
};

}  // namespace sparsereel::models
