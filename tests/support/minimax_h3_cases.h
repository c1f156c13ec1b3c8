// The cases of the small MiniMax-H3 models, which make_minimax_h3_dit.py, make_minimax_h3_vae.py and
// make_minimax_h3_sound.py in tests/parity made.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "models/transformer/transformer_input.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::test {

inline const ParityFamily& minimax_h3() {
  static const ParityFamily family = {.name = "MiniMaxH3",
                                      .folder = "minimax_h3/",
                                      .transformer_class = "MiniMaxH3Transformer3DModel",
                                      .vae_class = "AutoencoderKLMiniMaxH3"};
  return family;
}

inline std::vector<ParityCase> minimax_h3_cases() {
  std::vector<ParityCase> cases;
  const nlohmann::json listed = read_data("minimax_h3/dit_cases.json");
  for (const auto& [name, content] : listed.items()) cases.push_back({&minimax_h3(), name, content});
  return cases;
}

/// Returns the input of a case's forward pass. The text is converted to `dtype`; latents are in fp32.
inline models::TransformerInput minimax_h3_input(const ParityCase& one, const Golden& golden, at::ScalarType dtype) {
  const auto tensor = [&](const char* key) { return golden[one.name + "/" + key]; };
  const auto time = [&](size_t stream) {
    return at::full({1}, one.content["times"][stream].get<double>(), at::kDouble);
  };
  models::TransformerInput input = {.latents = tensor("latents"),
                                    .conditioning = {.text = tensor("text").to(dtype)},
                                    .timesteps = time(0),
                                    .sound = tensor("sound"),
                                    .sound_timesteps = time(1)};
  const nlohmann::json& anchors = one.content["keyframes"];
  for (size_t i = 0; i < anchors.size(); ++i)
    input.keyframes.push_back({.latents = tensor("keyframes").narrow(0, static_cast<int64_t>(i), 1),
                               .last = anchors[i].get<std::string>() == "last"});
  for (const nlohmann::json& span : one.content["pictures"])
    input.conditioning.pictures.push_back({.first = span[0].get<int64_t>(), .count = span[1].get<int64_t>()});
  return input;
}

}  // namespace sparsereel::test
