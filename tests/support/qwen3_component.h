// Opens the small Qwen3-VL models of make_qwen3.py and make_qwen3_vision.py in tests/parity as a checkpoint does.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/text/encoder/qwen3_names.h"

namespace sparsereel::test {

/// Opens a weight file whose tensors may have any of the published names. `name` is the folder of tests/parity/data
/// that holds config.json. If `file` is empty, opens model.safetensors of that folder.
inline models::Component qwen3_in(const std::string& name, std::filesystem::path file = {}) {
  const std::filesystem::path folder = std::filesystem::path(SPARSEREEL_TEST_DATA) / name;
  if (file.empty()) file = folder / "model.safetensors";
  static const models::Part part =
      models::qwen3_vl_part("qwen3.safetensors");  // static, because the component refers to its names
  models::Component component = component_of(models::open_weights(file), part);
  component.class_name = "Qwen3VLForConditionalGeneration";
  component.origin = file;
  component.config_file = (folder / "config.json").string();
  component.config = models::read_json(component.config_file);
  return component;
}

/// Opens a file of the small Qwen3-VL without a vision model.
inline models::Component small_qwen3(const std::filesystem::path& file = {}) {
  return qwen3_in("qwen3", file);
}

/// Writes the component's weights to `file` as ComfyUI's files for video models hold them, and opens the file. Such
/// files have other names, only the first four layers, and no final norm.
inline models::Component small_qwen3_renamed(const models::Component& component, const std::filesystem::path& file) {
  const models::NameMap comfy = models::qwen3_names().others.front();
  std::vector<models::TensorView> views;
  for (const auto& [name, place] : component.tensors) {
    const models::TensorEntry& entry = *place.second;
    if (name.find("layers.4.") != std::string::npos || name.find("language_model.norm") != std::string::npos) continue;
    views.push_back({comfy.second(name), entry.dtype, entry.shape, component.files[place.first]->data(entry)});
  }
  models::write_safetensors(file, views);
  return qwen3_in("qwen3_vision", file);
}

}  // namespace sparsereel::test
