// Finds a component's tensors, and gives them diffusers' names.
#include "models/store/checkpoint/component.h"

#include <algorithm>
#include <utility>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/quantization.h"
#include "models/store/checkpoint/tensor_sizes.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

/// The names of a file's tensors without the prefixes of wrapper modules (wrapped_name.h), and the place of each
/// tensor.
using BareTensors = std::vector<std::pair<std::string, TensorTable::mapped_type>>;

BareTensors bare_tensors(const TensorTable& tensors) {
  BareTensors bare;
  for (const auto& [name, place] : tensors) bare.emplace_back(without_wrappers(without_quanto(name)), place);
  return bare;
}

/// Joins the part's prefixes that the file's names begin with. At each position, takes the first of the part's prefixes
/// that any name has there. Names that do not begin with the result belong to another component.
std::string prefix_of(const BareTensors& stored, const Part& part) {
  std::vector<std::string> prefixes = {part.role + "."};
  prefixes.insert(prefixes.end(), part.names.prefixes.begin(), part.names.prefixes.end());
  std::string all;
  for (size_t i = 0; i < kMostPrefixes; ++i) {
    const auto is_there = [&](const std::string& prefix) {
      const std::string longer = all + prefix;
      return std::ranges::any_of(stored, [&](const auto& tensor) { return tensor.first.starts_with(longer); });
    };
    const auto found = std::ranges::find_if(prefixes, is_there);
    if (found == prefixes.end()) break;
    all += *found;
  }
  return all;
}

/// Returns the map that contains the largest number of the file's names; if several maps do, the first one. Returns
/// null if no map contains any of them: then the names are diffusers'.
const NameMap* map_of(const BareTensors& stored, const std::string& prefix, const std::vector<NameMap>& maps) {
  const auto known = [&](const NameMap& map) {
    return std::ranges::count_if(stored, [&](const auto& tensor) {
      if (!tensor.first.starts_with(prefix)) return false;
      const std::string bare = tensor.first.substr(prefix.size());
      return map.first(bare) != bare;
    });
  };
  const auto most = std::ranges::max_element(maps, {}, known);
  return most == maps.end() || known(*most) == 0 ? nullptr : &*most;
}

/// If the parts of a layer are interleaved (MovedRows::turns_like), returns the number of rows in a group. Returns 0 if
/// they are not, or if the tensor that gives the number is missing.
int64_t group_rows(const TensorTable& named, const std::string& name, const MovedRows& rows) {
  if (rows.turns_like.empty()) return 0;
  size_t end = 0;  // position after the name of the module that holds the layer
  for (int64_t dots = std::ranges::count(rows.second, '.'); dots > 0; --dots) end = name.find('.', end) + 1;
  const auto like = named.find(name.substr(0, end) + rows.turns_like);
  return like == named.end() ? 0 : static_cast<int64_t>(like->second.second->elements());
}

/// Returns the part of a stored tensor that belongs to a layer. `rows` is null if the layer gets the whole tensor, like
/// every layer that shares a single number.
const TensorEntry* entry_of(Component& component, const TensorEntry* stored, const MovedRows* rows, int64_t group) {
  if (rows == nullptr || stored->elements() <= 1) return stored;
  const auto part = part_of(*stored, *rows, group);
  if (!part) return stored;  // The rows cannot be divided. Reading the tensor will report its wrong shape.
  return component.parts.emplace_back(std::make_shared<TensorEntry>(*part)).get();
}

void add_tensor(Component& component, const std::string& name, size_t file, const TensorEntry* entry) {
  const auto [other, is_new] = component.tensors.emplace(name, std::pair(file, entry));
  if (!is_new)
    throw bad_file(
        component.origin,
        in_quotes(other->second.second->name) + " and " + in_quotes(entry->name) + " are two names of one tensor",
        "export the file again under the names of one program");
}

void rename_last_block(Component& component, const NameMap::Pairs& pairs) {
  for (const auto& [usual, other] : pairs) {
    const int64_t last = count_blocks(component.tensors, usual.substr(0, usual.find('*'))) - 1;
    const auto of_last = [&](std::string name) { return name.replace(name.find('*'), 1, std::to_string(last)); };
    const NameMap names({{of_last(usual), of_last(other)}});
    const TensorTable tensors = std::exchange(component.tensors, {});
    for (const auto& [name, place] : tensors) add_tensor(component, names.second(name), place.first, place.second);
  }
}

void name_tensors(Component& component, const StoredWeights& weights, const Part& part) {
  const StoredNames& names = part.names;
  const BareTensors stored = bare_tensors(weights.tensors);
  component.origin = weights.origin;
  component.files = weights.files;
  component.prefix = prefix_of(stored, part);
  component.names = map_of(stored, component.prefix, names.others);
  TensorTable named;
  for (const auto& [name, place] : stored)
    if (name.starts_with(component.prefix)) named.emplace(name.substr(component.prefix.size()), place);
  if (component.names != nullptr && names.choose != nullptr) {
    ChosenNames chosen = names.choose(named, weights);
    component.names = &names.others.at(chosen.index);
    component.doubt = std::move(chosen.doubt);
  }
  for (const auto& [name, place] : stored) {
    if (!name.starts_with(component.prefix)) continue;
    const std::string bare = name.substr(component.prefix.size());
    if (std::ranges::count(names.no_weights, bare) > 0) continue;
    if (component.names == nullptr) {
      add_tensor(component, bare, place.first, place.second);
      continue;
    }
    const bool is_whole = is_undivided(bare, named);
    for (const PlacedName& layer : component.names->placed_firsts(bare)) {
      const MovedRows* rows = is_whole ? nullptr : layer.rows;
      const int64_t group = rows == nullptr ? 0 : group_rows(named, bare, *rows);
      add_tensor(component, layer.name, place.first, entry_of(component, place.second, rows, group));
    }
  }
  if (component.names != nullptr) rename_last_block(component, names.of_last_block);
}

/// Finds quantized layers. Their weights get the shapes and dtypes that they have in memory. Tensors that are joined to
/// a weight, such as scales, are removed from the component's list.
void join_quantized(Component& component) {
  component.quantized = quantized_layers(component.tensors, component.files);
  for (const auto& [name, layer] : component.quantized) {
    const std::string stem = name.substr(0, name.rfind('.') + 1);
    component.tensors.erase(stem + "pre_quant_scale");
    if (!layer.is_joined()) continue;
    for (const auto& [part, place] : layer.tensors)
      if (part != "weight") component.tensors.erase(stem + part);
    const auto& [file, weight] = layer.tensors.at("weight");
    auto joined = std::make_shared<TensorEntry>(*weight);
    joined->dtype = layer.format->packed;
    joined->shape = {layer.rows, layer.columns};
    // If the file pads the rows, the length of the bias is the true number of rows.
    const auto bias = component.tensors.find(stem + "bias");
    if (bias != component.tensors.end() && bias->second.second->shape.size() == 1) {
      const int64_t rows = bias->second.second->shape[0], unit = layer.format->padding_rows;
      if (rows > 0 && (rows - 1) / unit == (layer.rows - 1) / unit) joined->shape[0] = std::min(rows, layer.rows);
    }
    component.tensors[name] = {file, joined.get()};
    component.parts.push_back(std::move(joined));
  }
}

}  // namespace

const std::vector<int64_t>& Component::shape_of(const std::string& tensor) const {
  const auto wider = widened.find(tensor);
  return wider != widened.end() ? wider->second : tensors.at(tensor).second->shape;
}

uint64_t Component::parameter_count() const {
  uint64_t count = 0;
  for (const auto& [tensor, place] : tensors) count += place.second->elements();
  return count;
}

uint64_t Component::bytes() const {
  uint64_t sum = 0;
  for (const auto& [tensor, place] : tensors) sum += own_bytes(*place.second);
  for (const auto& [name, layer] : quantized)
    for (const auto& [part, place] : layer.tensors) {
      if (part == "weight" || (!layer.is_joined() && part != "pre_quant_scale")) continue;
      const TensorEntry& entry = *place.second;
      const bool is_shared = files[place.first]->find(entry.name) == &entry && layer.stored_rows > 0;
      sum += is_shared ? entry.bytes * static_cast<uint64_t>(layer.rows) / static_cast<uint64_t>(layer.stored_rows)
                       : own_bytes(entry);
    }
  return sum;
}

void Component::check_whole() const {
  for (const auto& file : files) file->check_whole();
  for (const auto& [tensor, added] : deltas)
    for (const WeightDelta& delta : added) delta.file->check_whole();
}

std::string Component::name_in_file(const std::string& name) const {
  if (const auto found = tensors.find(name); found != tensors.end()) return found->second.second->name;
  return prefix + (names == nullptr ? name : names->second(name));
}

Component component_of(const StoredWeights& weights, const Part& part) {
  Component component;
  component.class_name = part.classes.front();
  name_tensors(component, weights, part);
  join_quantized(component);
  return component;
}

}  // namespace sparsereel::models
