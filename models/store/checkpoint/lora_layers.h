// Finds the layers of a checkpoint that a LoRA's layers change. The LoRA may use any naming that the checkpoint's
// family knows.
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

/// Returns a layer's name in every naming that the part knows; diffusers' name comes first.
std::vector<PlacedName> spellings(const std::string& name, const Part& part);

/// Looks up a component's layers by any spelling of their names. The component must outlive this object.
class LayerSpellings {
 public:
  /// `with_adapter` is LoraNames::names_with_adapter.
  LayerSpellings(const Component& component, const Part& part, std::optional<size_t> with_adapter);

  /// Returns the component's layers that a file's layer changes: several if the file's layer joins their rows, none if
  /// the name is unknown.
  std::vector<PlacedName> find(const LoraLayer& layer) const;
  /// Returns the name of the layer's weight or bias tensor; empty if there is none. `kind` is ".weight" or ".bias".
  std::string tensor(const std::string& layer, const char* kind) const;
  const std::vector<int64_t>& shape(const std::string& tensor) const { return component_.shape_of(tensor); }
  /// Returns the shape that a change to this tensor must have; `change` is the shape that it has. The result is the
  /// tensor's shape, but without the padding columns if the checkpoint's file has some and the change has none.
  std::vector<int64_t> shape_for(const std::string& tensor, const std::vector<int64_t>& change) const;
  /// Returns the number of rows of the layer's weight, taken from the bias or else from the weight; 0 if the layer has
  /// neither.
  int64_t rows(const std::string& layer) const;

 private:
  const Component& component_;
  /// For each spelling of a name, the component's layers that it stands for. dotted_ has names with dots, flat_ has
  /// names with underscores, and with_adapter_ has the names of the map that LoraNames::names_with_adapter chooses.
  std::map<std::string, std::vector<PlacedName>> dotted_, flat_, with_adapter_;
};

}  // namespace sparsereel::models
