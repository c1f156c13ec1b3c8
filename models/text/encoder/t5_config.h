// The config.json of T5, mT5 and UMT5, the text encoders that families share, as a plain struct. Field names are those
// of transformers. No torch.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sparsereel::models {

class Checkpoint;

/// transformers' T5Config, MT5Config (the same with a multilingual vocabulary) or UMT5Config of an encoder.
/// feed_forward_proj must be gated-gelu (T5 v1.1).
struct T5Config {
  bool bias_per_layer = false;  // true for UMT5; in T5, all layers share the relative bias of the first layer
  int64_t vocab_size = 32128;
  int64_t d_model = 4096;
  int64_t d_kv = 64;
  int64_t d_ff = 10240;
  int64_t num_layers = 24;
  int64_t num_heads = 64;
  int64_t relative_attention_num_buckets = 32;
  int64_t relative_attention_max_distance = 128;
  double layer_norm_epsilon = 1e-6;
};

/// Reads a config.json. A missing field takes the default of transformers' class, which may differ from the value
/// above. Throws Error naming `file` and the field for a wrong JSON type, an impossible value, or an unsupported
/// feature.
T5Config parse_t5_config(const nlohmann::json& json, const std::string& file);

/// Throws Error naming file and field if the checkpoint's text encoder has another model_type ("umt5"), or if its
/// d_model differs from `width`, the value of the transformer's `field`.
void check_text_encoder(const Checkpoint& checkpoint, const std::string& model_type, const std::string& field,
                        int64_t width);

}  // namespace sparsereel::models
