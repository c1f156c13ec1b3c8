// Collects the spellings of all layers once, and looks them up by a file's names.
#include "models/store/checkpoint/lora_layers.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "models/store/checkpoint/lora_names.h"

namespace sparsereel::models {
namespace {

std::string layer_of(const std::string& tensor) {
  for (const std::string_view end : {".weight", ".bias"})
    if (tensor.ends_with(end)) return tensor.substr(0, tensor.size() - end.size());
  return tensor;
}

/// Adds a layer to those of one spelling. If a spelling stands for two layers, only the first one is added, unless each
/// is a part of the rows of a joined layer.
void add(std::vector<PlacedName>& layers, const PlacedName& layer) {
  if (std::ranges::find(layers, layer.name, &PlacedName::name) != layers.end()) return;
  if (layers.empty() || (layer.rows != nullptr && layers.front().rows != nullptr)) layers.push_back(layer);
}

}  // namespace

std::vector<PlacedName> spellings(const std::string& name, const Part& part) {
  std::vector<PlacedName> all = {{name}};
  for (const NameMap& other : part.names.others) all.push_back(other.placed_second(name));
  return all;
}

LayerSpellings::LayerSpellings(const Component& component, const Part& part, std::optional<size_t> with_adapter)
    : component_(component) {
  std::set<std::string> layers;
  for (const auto& [tensor, place] : component.tensors) layers.insert(layer_of(tensor));
  for (const std::string& layer : layers) {
    for (const auto& [spelled, rows] : spellings(layer, part)) {
      add(dotted_[spelled], {layer, rows});
      add(flat_[underscored(spelled)], {layer, rows});
    }
  }
  if (!with_adapter) return;
  for (const std::string& layer : layers) {
    const auto [spelled, rows] = part.names.others.at(*with_adapter).placed_second(layer);
    add(with_adapter_[spelled], {layer, rows});
  }
}

std::vector<PlacedName> LayerSpellings::find(const LoraLayer& layer) const {
  if (const auto other = with_adapter_.find(layer.name); layer.has_adapter && other != with_adapter_.end())
    return other->second;
  const auto& names = layer.underscores ? flat_ : dotted_;
  const auto found = names.find(layer.name);
  return found == names.end() ? std::vector<PlacedName>{} : found->second;
}

std::string LayerSpellings::tensor(const std::string& layer, const char* kind) const {
  if (component_.tensors.contains(layer + kind)) return layer + kind;
  const bool bare = component_.tensors.contains(layer) && kind == std::string_view(".weight");
  return bare ? layer : "";
}

std::vector<int64_t> LayerSpellings::shape_for(const std::string& tensor, const std::vector<int64_t>& change) const {
  std::vector<int64_t> found = shape(tensor);
  const auto layer = component_.quantized.find(tensor);
  if (layer == component_.quantized.end() || found.size() != 2 || change.size() < 2) return found;
  const int64_t unit = layer->second.format->padding_columns, columns = change[1];
  if (columns > 0 && (columns + unit - 1) / unit * unit == found[1]) found[1] = columns;
  return found;
}

int64_t LayerSpellings::rows(const std::string& layer) const {
  for (const char* kind : {".bias", ".weight"})
    if (const std::string found = tensor(layer, kind); !found.empty() && !shape(found).empty())
      return shape(found).front();
  return 0;
}

}  // namespace sparsereel::models
