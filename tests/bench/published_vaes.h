// The published VAEs that benchmarks run with random weights.
#pragma once

#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/engine/components.h"

namespace sparsereel::bench {

struct PublishedVae {
  std::string name;
  // File below tests/parity/data with the tensors' names, and the key of the model in it.
  std::string names_file, model;
  std::string vae_class;
  std::vector<int64_t> latents;  // shape of the latents of a typical video
};

inline const PublishedVae& published_vae(const std::string& name) {
  static const std::vector<PublishedVae> table = {
      {"cogvideox", "vae_names.json", "2b", "AutoencoderKLCogVideoX", {1, 16, 13, 60, 90}},
      {"wan-2.1", "wan/vae_names.json", "2.1", "AutoencoderKLWan", {1, 16, 21, 60, 104}},
      {"wan-2.2", "wan/vae_names.json", "2.2 5b", "AutoencoderKLWan", {1, 48, 31, 44, 80}},
  };
  std::string known;
  for (const PublishedVae& each : table) {
    if (each.name == name) return each;
    known += " " + each.name;
  }
  throw bad_input("no VAE is named " + name, "choose one of" + known);
}

inline models::Component random_vae(const PublishedVae& one) {
  const auto file = std::string(SPARSEREEL_SOURCE_DIR) + "/tests/parity/data/" + one.names_file;
  models::Component component;
  component.class_name = one.vae_class;
  component.config = models::read_json(file).at(one.model).at("config");
  component.config_file = file;
  component.random_seed = 0;
  return component;
}

}  // namespace sparsereel::bench
