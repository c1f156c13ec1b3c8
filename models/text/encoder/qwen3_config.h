// The config.json of Qwen3's language models (arXiv 2505.09388), alone or inside Qwen3-VL, as a plain struct. Field
// names are those of transformers. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

struct Qwen3Config {
  int64_t vocab_size = 151936;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 22016;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 32;  // each is shared by num_attention_heads / num_key_value_heads heads of queries
  int64_t head_dim = 128;
  double rms_norm_eps = 1e-6;
  double rope_theta = 500000;
  /// How many frequencies belong to the time, the row and the column of pictures (picture_positions.h). For text alone
  /// they do not matter.
  std::array<int64_t, 3> mrope_section = {24, 20, 20};
};

/// Reads a config.json: the object text_config of a Qwen3-VL, or a file of the language model alone. A missing field
/// takes the default of Qwen3VLTextConfig. Throws Error naming `file` and the field for a wrong JSON type, an
/// impossible value, or an unsupported feature (biases, scaled rotary positions).
Qwen3Config parse_qwen3_config(const nlohmann::json& json, const std::string& file);

}  // namespace sparsereel::models
