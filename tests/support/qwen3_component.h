// The small Qwen3-VL of tests/parity/make_qwen3.py as a checkpoint would open it.
#pragma once

#include <filesystem>

#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/qwen3_names.h"

namespace sparsereel::test {

/// Opens a file of weights under any of the published names, with the config.json of the small model. The default is
/// the small model's own file.
inline models::Component small_qwen3(std::filesystem::path file = {}) {
  const std::filesystem::path folder = std::filesystem::path(SPARSEREEL_TEST_DATA) / "qwen3";
  if (file.empty()) file = folder / "model.safetensors";
  models::Component component = component_of(models::open_weights(file), models::qwen3_vl_part("qwen3.safetensors"));
  component.class_name = "Qwen3VLForConditionalGeneration";
  component.origin = file;
  component.config_file = (folder / "config.json").string();
  component.config = models::read_json(component.config_file);
  return component;
}

}  // namespace sparsereel::test
