// Lists the files of the parts that are one file each, or one file in shards, and describes them in JSON.
#include "models/store/checkpoint/part_files.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/format_name.h"
#include "models/store/checkpoint/model_hash.h"

namespace sparsereel::models {
namespace {

/// Returns true if the tensor only helps to read a quantized weight beside it, such as LightX2V's "q.alpha".
bool is_beside(const QuantizedLayers& layers, const std::string& tensor) {
  const size_t dot = std::min(tensor.rfind('.'), tensor.size());
  const auto found = layers.find(tensor.substr(0, dot) + ".weight");
  return found != layers.end() && !tensor.ends_with(".weight") && dot < tensor.size() &&
         found->second.find(tensor.substr(dot + 1)) != nullptr;
}

}  // namespace

std::string types_of(const TensorTable& tensors, const QuantizedLayers& layers) {
  std::map<std::string, int64_t> counts;
  for (const auto& [tensor, place] : tensors)
    if (const std::string label = label_of(layers, tensor); !label.empty())
      ++counts[label];
    else if (!is_scale(tensor) && !is_beside(layers, tensor))
      ++counts[std::string(name(place.second->dtype)) + (has_scale(tensors, tensor) ? " with scales" : "")];
  std::vector<std::pair<int64_t, std::string>> types;
  for (const auto& [type, count] : counts) types.emplace_back(-count, type);
  std::ranges::sort(types);
  std::string text;
  for (const auto& [count, type] : types) text += (text.empty() ? "" : ", ") + type + " " + std::to_string(-count);
  return text;
}

std::vector<PartFile> part_files(const Checkpoint& checkpoint) {
  std::vector<PartFile> files;
  for (const std::string& role : checkpoint.roles()) {
    if (!has_weights(role)) continue;
    const Component& component = checkpoint.component(role);
    if (!component.by_itself) continue;
    PartFile file{.role = role,
                  .path = component.origin,
                  .format = types_of(component.tensors, component.quantized),
                  .sha256 = weights_hash(component)};
    for (const auto& each : component.files) file.bytes += std::filesystem::file_size(each->path());
    files.push_back(std::move(file));
  }
  return files;
}

nlohmann::json shown(const std::vector<PartFile>& files) {
  nlohmann::json all = nlohmann::json::object();
  for (const PartFile& file : files)
    all[file.role] = {{"path", file.path.string()}, {"bytes", file.bytes}, {"format", file.format}};
  return all;
}

nlohmann::json remembered(const std::vector<PartFile>& files) {
  nlohmann::json all = nlohmann::json::object();
  for (const PartFile& file : files)
    all[file.role] = {{"name", file.path.filename().string()}, {"bytes", file.bytes}, {"sha256", file.sha256}};
  return all;
}

}  // namespace sparsereel::models
