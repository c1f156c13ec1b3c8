// Translates between the names that two programs give to the same tensors. No torch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/store/checkpoint/moved_rows.h"
#include "models/store/checkpoint/stored_weights.h"

namespace sparsereel::models {

/// A tensor's name, translated from one program's to another's. If one of the programs joins several tensors of the
/// other into one, `rows` says which rows of the joined tensor belong to the smaller one; otherwise `rows` is null.
struct PlacedName {
  std::string name;
  const MovedRows* rows = nullptr;
};

/// Pairs of a first and a second program's names of a layer or tensor: {"blocks.*.attn1.to_q", "blocks.*.self_attn.q"}.
/// A * stands for the same number in both names. What follows a layer's name (".weight") is kept. If two pairs match,
/// the first one counts.
class NameMap {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  NameMap(Pairs pairs = {}) : pairs_(std::move(pairs)) {}
  /// Returns a copy that also maps layers whose rows are a part of a layer of the second program.
  NameMap with_moved_rows(std::vector<MovedRows> moved) const {
    NameMap all = *this;
    all.moved_ = std::move(moved);
    return all;
  }

  /// second() translates a name of the first program to the second program's, and first() translates back. A name
  /// without a pair is returned as it is. If a tensor of the second program holds rows of several layers, first()
  /// returns one of them.
  std::string second(const std::string& first) const { return placed_second(first).name; }
  std::string first(const std::string& second) const { return placed_firsts(second).front().name; }

  /// Translate names, and give the places of rows: a tensor of the second program may hold the rows of several tensors
  /// of the first. placed_firsts() returns at least one name.
  PlacedName placed_second(const std::string& first) const;
  std::vector<PlacedName> placed_firsts(const std::string& second) const;

 private:
  Pairs pairs_;
  std::vector<MovedRows> moved_;
};

/// The names that a file follows.
struct ChosenNames {
  size_t index = 0;        // in StoredNames::others
  std::string doubt = {};  // a warning that names the file, if it does not show for certain which names it follows
};

/// The names of a component's tensors in other programs' files.
struct StoredNames {
  std::vector<NameMap> others = {};  // maps from diffusers' names to names of the authors or of another program
  /// Returns the map in `others` that a file follows. `tensors` has the file's names without prefixes. This function is
  /// needed if programs use the same names but order rows differently; it is null if the names alone show the map.
  /// LoRAs always follow the first map that contains their names.
  ChosenNames (*choose)(const TensorTable& tensors, const StoredWeights& weights) = nullptr;
  /// Words that may stand before every name in a file; several may follow each other. If two match, the first one in
  /// this list is taken. The part's role need not be listed: it is always tried first.
  std::vector<std::string> prefixes = {};
  std::vector<std::string> no_weights = {};  // tensors that a file may have, but that hold no weights; they are ignored
  /// Layers to which diffusers, but not the other programs, gives another name in the last block: {"blocks.*.norm",
  /// "blocks.*.last_norm"}.
  NameMap::Pairs of_last_block = {};
};

}  // namespace sparsereel::models
