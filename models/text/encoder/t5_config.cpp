// Missing fields take the defaults of transformers' constructors, because a file that lacks a field relies on them.
// These defaults may differ from the values of published checkpoints.
#include "models/text/encoder/t5_config.h"

#include <nlohmann/json.hpp>

#include "models/files/config_fields.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

T5Config parse_t5_config(const nlohmann::json& json, const std::string& file) {
  const ConfigFields fields(json, file);
  fields.choice("feed_forward_proj", "relu", {"gated-gelu"});
  // transformers derives these two from feed_forward_proj, and lets the file override them.
  if (!fields.boolean("is_gated_act", true)) fields.unsupported("is_gated_act", "false", "true");
  fields.choice("dense_act_fn", "gelu_new", {"gelu_new"});
  T5Config config;
  config.bias_per_layer = fields.choice("model_type", "t5", {"t5", "mt5", "umt5"}) == "umt5";
  config.vocab_size = fields.integer("vocab_size", 32128);
  config.d_model = fields.integer("d_model", 512);
  config.d_kv = fields.integer("d_kv", 64);
  config.d_ff = fields.integer("d_ff", 2048);
  config.num_layers = fields.integer("num_layers", 6, 1, kMaxLayers);
  config.num_heads = fields.integer("num_heads", 8);
  config.relative_attention_num_buckets = fields.integer("relative_attention_num_buckets", 32, 4);
  config.relative_attention_max_distance = fields.integer("relative_attention_max_distance", 128);
  config.layer_norm_epsilon = fields.number("layer_norm_epsilon", 1e-6, 0, 1);
  fields.check_width("num_heads x d_kv", config.num_heads * config.d_kv);
  fields.require_multiple("relative_attention_num_buckets", config.relative_attention_num_buckets, 2);
  // Each direction has half of the buckets, and half of these hold one exact distance each. The others cover growing
  // ranges up to the maximum, which must therefore be above the exact distances.
  if (config.relative_attention_max_distance <= config.relative_attention_num_buckets / 4)
    fields.fail("relative_attention_max_distance", "is not above a quarter of relative_attention_num_buckets");
  return config;
}

void check_text_encoder(const Checkpoint& checkpoint, const std::string& model_type, const std::string& field,
                        int64_t width) {
  std::string file;
  const nlohmann::json json = checkpoint.config("text_encoder", &file);
  const T5Config config = parse_t5_config(json, file);
  ConfigFields(json, file).choice("model_type", "t5", {model_type});
  check_fits(file, "d_model", config.d_model, field, width);
}

}  // namespace sparsereel::models
