// The small VAEs of tests/parity/make_vae.py as components, without a pipeline around them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "models/checkpoint/model_folder.h"

namespace sparsereel::test {

/// tests/parity/data/<name>: config.json and one weight file. The scaling factor is 1: the golden latents are what
/// diffusers' own decode() takes, which knows no scale.
inline models::Component vae_component(const std::string& name) {
  models::Component component;
  component.class_name = "AutoencoderKLCogVideoX";
  component.folder = std::filesystem::path(SPARSEREEL_TEST_DATA) / name;
  component.config_file = (component.folder / "config.json").string();
  component.config = models::read_json(component.config_file);
  component.config["scaling_factor"] = 1;
  component.files.push_back(
      std::make_shared<models::SafetensorsFile>(component.folder / "diffusion_pytorch_model.safetensors"));
  for (const models::TensorEntry& entry : component.files[0]->header().entries)
    component.tensors[entry.name] = {0, &entry};
  return component;
}

}  // namespace sparsereel::test
