// The model families that the parity tests run: every family in tests/families.json that has data. To add a family, add
// a row there and its data; no test code names a family.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/engine/components.h"
#include "tests/support/golden.h"

namespace sparsereel::test {

struct ParityFamily {
  std::string name;    // the family's name in the names of tests
  std::string folder;  // path of its data below tests/parity/data, with a final slash; may be empty
  std::string transformer_class, vae_class;
  bool cross_attention = false;  // false: text and video tokens attend to each other in one sequence
  /// Bound on the relative L1 error of a forward pass in 8 bits. It is larger in families that normalize a layer's
  /// output before they add it to the residual stream, because errors of the output then weigh more. It is also larger
  /// in families whose cross-attention adds the outputs of two contexts.
  double fp8_error = 0.025;
  /// Bound on errors of frames in fp32, relative to max|frames|. It is larger for VAEs with RMS norms over channels.
  double vae_tolerance = 1e-5;
  std::vector<std::string> lists{};  // files of cases that the family has, such as "dit_cases.json"; empty: all of them
  /// The case for tests that run on one case of each family. Empty: the first case of each list. Not empty: the family
  /// shares its data and its lists of cases with another family, and the tests of all cases run for that other family.
  std::string usual_case{};
};

inline nlohmann::json read_data(const std::string& name) {
  return models::read_json(std::filesystem::path(SPARSEREEL_TEST_DATA) / name);
}

inline ParityFamily parity_family(const nlohmann::json& row) {
  const auto folder = row["data"].get<std::string>();
  const nlohmann::json index = read_data(folder + "pipeline/model_index.json");
  return {.name = row["name"],
          .folder = folder,
          .transformer_class = index["transformer"][1],
          .vae_class = index["vae"][1],
          .cross_attention = row.value("cross_attention", false),
          .fp8_error = row.value("fp8_error", 0.025),
          .vae_tolerance = row.value("vae_tolerance", 1e-5),
          .lists = row.value("lists", std::vector<std::string>()),
          .usual_case = row.value("case", std::string())};
}

/// Returns the text-to-video families, then the image-to-video families.
inline const std::vector<ParityFamily>& parity_families() {
  static const std::vector<ParityFamily> table = [] {
    std::vector<ParityFamily> families, of_images;
    const nlohmann::json rows = models::read_json(SPARSEREEL_SOURCE_DIR "/tests/families.json");
    for (const auto& [pipeline_class, row] : rows.items()) {
      if (row.contains("data")) families.push_back(parity_family(row));
      if (row.contains("image_to_video")) of_images.push_back(parity_family(row["image_to_video"]));
    }
    families.insert(families.end(), of_images.begin(), of_images.end());
    return families;
  }();
  return table;
}

inline bool has_list(const ParityFamily& family, const std::string& list) {
  return family.lists.empty() || std::ranges::count(family.lists, list) > 0;
}

/// Returns the families whose data include a complete pipeline. The others have only single modules.
inline std::vector<ParityFamily> whole_families() {
  std::vector<ParityFamily> whole;
  for (const ParityFamily& family : parity_families()) {
    if (has_list(family, "pipeline_cases.json") && !read_data(family.folder + "pipeline_cases.json").empty())
      whole.push_back(family);
  }
  return whole;
}

/// One case from a family's list of cases. A list is a file such as dit_cases.json or vae_cases.json that maps names to
/// cases.
struct ParityCase {
  const ParityFamily* family = nullptr;
  std::string name;
  nlohmann::json content;
};

/// Returns the case for tests that run on one case of each family. `list` is a file such as dit_cases.json.
inline nlohmann::json usual_case(const ParityFamily& family, const std::string& list) {
  const nlohmann::json listed = read_data(family.folder + list);
  return family.usual_case.empty() ? *listed.begin() : listed.at(family.usual_case);
}

/// Returns the cases of every family from its file `list`, such as dit_cases.json.
inline std::vector<ParityCase> parity_cases(const std::string& list) {
  std::vector<ParityCase> cases;
  for (const ParityFamily& family : parity_families()) {
    if (!has_list(family, list) || !family.usual_case.empty()) continue;
    const nlohmann::json listed = read_data(family.folder + list);
    for (const auto& [name, content] : listed.items()) cases.push_back({&family, name, content});
  }
  return cases;
}

/// Returns a name such as "CogVideoX_tiled" for INSTANTIATE_TEST_SUITE_P.
inline std::string case_name(const ::testing::TestParamInfo<ParityCase>& test) {
  std::string name = test.param.family->name + "_" + test.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

/// Returns the transformer of a case of dit_cases.json. The golden file holds the weights of all cases; each case maps
/// its tensors' names to keys in the file.
inline models::Component transformer_component(const ParityCase& one) {
  const auto file = std::make_shared<models::TensorFile>(std::string(SPARSEREEL_TEST_DATA) + "/" + one.family->folder +
                                                         "dit_golden.safetensors");
  models::Component component{.class_name = one.family->transformer_class,
                              .origin = "golden",
                              .config = one.content["config"],
                              .config_file = "golden/config.json",
                              .files = {file},
                              .tensors = {}};
  for (const auto& [name, key] : one.content["weights"].items())
    component.tensors[name] = {0, file->find(key.get<std::string>())};
  return component;
}

/// The inputs of a transformer's forward pass, in one dtype on one device.
struct TransformerForward {
  at::Tensor latents;
  models::Conditioning conditioning;
  at::Tensor timesteps;
};

/// Reads a case's inputs from its family's golden file. If the case sets `text_tokens`, zeros pad its text to that
/// length. A case may also have image tokens and a mask of known latents.
inline TransformerForward transformer_forward(const ParityCase& one, const Golden& golden,
                                              const at::TensorOptions& options) {
  const auto tensor = [&](const char* key) { return golden[one.name + "/" + key]; };
  const auto if_any = [&](const char* key) {
    return golden.contains(one.name + "/" + key) ? tensor(key) : at::Tensor();
  };
  models::Conditioning given = {.text = tensor("text"),
                                .text_lengths = one.content.value("text_lengths", std::vector<int64_t>()),
                                .context = if_any("context"),
                                .mask = if_any("mask")};
  const int64_t length = one.content.value("text_tokens", given.text.size(1));
  if (const int64_t own = given.text.size(1); length > own) {
    given.text = at::constant_pad_nd(given.text, {0, 0, 0, length - own});
    given.text_lengths.assign(static_cast<size_t>(given.text.size(0)), own);
  }
  return {.latents = tensor("latents").to(options),
          .conditioning = given.to(options),
          .timesteps = tensor("timesteps").to(options.device())};
}

/// Returns the VAE in the folder `name` of the family's data. The folder holds config.json and one weight file, or two
/// weight files if the encoder has its own. The scaling factor is set to 1, because the golden latents come from
/// diffusers' decode() and encode(), which do not apply the factor.
inline models::Component vae_component(const ParityFamily& family, const std::string& name) {
  models::Component component;
  component.class_name = family.vae_class;
  component.origin = std::filesystem::path(SPARSEREEL_TEST_DATA) / (family.folder + name);
  component.config_file = (component.origin / "config.json").string();
  component.config = models::read_json(component.config_file);
  component.config["scaling_factor"] = 1;
  for (const char* file : {"diffusion_pytorch_model.safetensors", "encoder.safetensors"}) {
    if (!std::filesystem::exists(component.origin / file)) continue;
    const size_t index = component.files.size();
    component.files.push_back(std::make_shared<models::TensorFile>(component.origin / file));
    for (const models::TensorEntry& entry : component.files[index]->entries())
      component.tensors[entry.name] = {index, &entry};
  }
  return component;
}

/// Returns the same component with random weights instead of files.
inline models::Component with_random_weights(models::Component component, uint64_t seed) {
  component.files.clear();
  component.tensors.clear();
  component.random_seed = seed;
  return component;
}

/// Returns frames of this shape for a case of vae_encoder_cases.json, in fp32 from -1 to 1. The script that made the
/// case's golden latents computes the same frames.
inline at::Tensor frames_to_encode(at::IntArrayRef shape) {
  const at::Tensor index = at::arange(c10::multiply_integers(shape), at::kLong);
  return (index * index * 31 + index * 7919).remainder(251).to(at::kFloat).div(125).sub(1).view(shape);
}

}  // namespace sparsereel::test
