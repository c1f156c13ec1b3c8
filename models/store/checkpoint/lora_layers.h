// Finds the layers of a checkpoint that a LoRA's layers change, in every naming that the checkpoint's family knows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/component.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/lora_file.h"
#include "models/store/checkpoint/name_map.h"

namespace sparsereel::models {

/// Returns the name in every known naming, diffusers' first.
std::vector<PlacedName> spellings(const std::string& name, const Part& part);

/// The names of a component's layers in every spelling. The component must outlive it.
class LayerSpellings {
 public:
  /// `with_adapter` is LoraNames::names_with_adapter.
  LayerSpellings(const Component& component, const Part& part, std::optional<size_t> with_adapter);

  /// Returns the layers that a file's layer changes: several if it joins their rows, none if unknown.
  std::vector<PlacedName> find(const LoraLayer& layer) const;
  /// Returns the tensor of the layer's weight or bias; empty if none. `kind` is ".weight" or ".bias".
  std::string tensor(const std::string& layer, const char* kind) const;
  const std::vector<int64_t>& shape(const std::string& tensor) const { return component_.shape_of(tensor); }
  /// Returns the tensor's shape for a change with this number of columns: a file may have padded the tensor's columns.
  std::vector<int64_t> shape_for(const std::string& tensor, const std::vector<int64_t>& change) const;
  /// Returns the number of rows of the layer's matrix, by its bias or else its weight; 0 if it has neither.
  int64_t rows(const std::string& layer) const;

 private:
  const Component& component_;
  /// For each spelling, the layer's name in the checkpoint.
  std::map<std::string, std::vector<PlacedName>> dotted_, flat_, with_adapter_;
};

}  // namespace sparsereel::models
