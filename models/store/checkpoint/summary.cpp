// Adds up the sizes of a checkpoint's components.
#include "models/store/checkpoint/summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/files/json_text.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

ComponentSummary summarize_component(const Checkpoint& checkpoint, const std::string& name) {
  ComponentSummary summary{.name = name, .class_name = checkpoint.component_class(name)};
  if (!has_weights(name)) return summary;
  const Component& component = checkpoint.component(name);
  summary.tensors = component.tensors.size();
  summary.parameters = component.parameter_count();
  summary.bytes = component.bytes();
  for (const auto& [tensor, place] : component.tensors) {
    const TensorEntry& entry = *place.second;
    summary.dtypes[std::string(models::name(entry.dtype))] += entry.elements();
  }
  for (const auto& file : component.files)
    summary.files.push_back({file->path().filename().string(), fs::file_size(file->path())});
  return summary;
}

/// Replaces bytes that are not UTF-8: a path may have any bytes, but JSON text must be UTF-8.
std::string as_utf8(const std::string& text) {
  return parse_json_if_valid(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

}  // namespace

uint64_t CheckpointSummary::parameters() const {
  uint64_t sum = 0;
  for (const ComponentSummary& component : components) sum += component.parameters;
  return sum;
}

uint64_t CheckpointSummary::bytes() const {
  uint64_t sum = 0;
  for (const ComponentSummary& component : components) sum += component.bytes;
  return sum;
}

CheckpointSummary summarize(const Checkpoint& checkpoint, const VideoSize& made_for,
                            const std::map<std::string, uint64_t>& fp8_bytes) {
  const Family& family = *find_family(checkpoint.pipeline_class());
  CheckpointSummary summary;
  summary.path = checkpoint.path().string();
  summary.family = family.name;
  summary.pipeline_class = checkpoint.pipeline_class();
  for (const std::string& name : checkpoint.roles()) {
    summary.components.push_back(summarize_component(checkpoint, name));
    if (fp8_bytes.contains(name)) summary.components.back().fp8_bytes = fp8_bytes.at(name);
  }

  const ModelSpec spec = describe(checkpoint);
  summary.variant = spec.variant;
  summary.license = spec.license;
  summary.width = made_for.width.value_or(spec.defaults.width);
  summary.height = made_for.height.value_or(spec.defaults.height);
  summary.frames = made_for.frames.value_or(spec.defaults.frames);
  return summary;
}

json to_json(const CheckpointSummary& summary) {
  json components = json::array(), memory = json::array();
  for (const ComponentSummary& component : summary.components) {
    json files = json::array();
    for (const FileSummary& file : component.files)
      files.push_back({{"name", as_utf8(file.name)}, {"bytes", file.bytes}});
    components.push_back({{"name", component.name},
                          {"class_name", component.class_name},
                          {"tensors", component.tensors},
                          {"parameters", component.parameters},
                          {"bytes", component.bytes},
                          {"dtypes", component.dtypes},
                          {"files", files}});
    if (component.fp8_bytes > 0) components.back()["fp8_bytes"] = component.fp8_bytes;
  }
  for (const MemoryEstimate& estimate : summary.memory) {
    memory.push_back({{"dtype", estimate.dtype},
                      {"weights", estimate.weights},
                      {"activations", estimate.activations},
                      {"process", estimate.process},
                      {"total", estimate.total()}});
    for (const auto& [gpus, bytes] : estimate.of_each)
      memory.back()["of_each"].push_back({{"gpus", gpus}, {"total", bytes}});
  }
  json content = {{"path", as_utf8(summary.path)},
                  {"family", summary.family},
                  {"variant", summary.variant},
                  {"pipeline_class", summary.pipeline_class},
                  {"width", summary.width},
                  {"height", summary.height},
                  {"frames", summary.frames},
                  {"parameters", summary.parameters()},
                  {"bytes", summary.bytes()},
                  {"components", components},
                  {"memory", memory}};
  if (!summary.license.empty()) content["license"] = summary.license;
  return content;
}

}  // namespace sparsereel::models
