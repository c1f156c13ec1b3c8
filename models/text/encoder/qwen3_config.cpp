// Parses the fields as transformers 4 and 5 write them: version 5 keeps the fields of rotary positions in
// rope_parameters.
#include "models/text/encoder/qwen3_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/files/config_fields.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

/// Reads the fields of rotary positions.
void parse_rope(Qwen3Config& config, const json& text, const std::string& file) {
  config.rope_theta = ConfigFields(text, file).positive_number("rope_theta", config.rope_theta);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const auto found = text.find(name);
    if (found == text.end() || found->is_null()) continue;
    const std::string place = file + ": " + name;
    const ConfigFields fields(*found, place);
    fields.choice("rope_type", "default", {"default"});
    config.rope_theta = fields.positive_number("rope_theta", config.rope_theta);
    const std::vector<int64_t> section =
        fields.integers("mrope_section", {config.mrope_section.begin(), config.mrope_section.end()}, 0);
    if (section.size() != config.mrope_section.size())
      fields.fail("mrope_section", "has " + std::to_string(section.size()) + " entries, not 3");
    std::ranges::copy(section, config.mrope_section.begin());
    if (!fields.boolean("mrope_interleaved", true)) fields.unsupported("mrope_interleaved", "false", "true");
  }
}

}  // namespace

Qwen3Config parse_qwen3_config(const json& whole, const std::string& file) {
  const bool is_inside = whole.is_object() && whole.contains("text_config");
  if (is_inside) ConfigFields(whole, file).choice("model_type", "qwen3_vl", {"qwen3_vl"});
  const json& text = is_inside ? whole["text_config"] : whole;
  const std::string place = is_inside ? file + ": text_config" : file;
  const ConfigFields fields(text, place);
  fields.choice("model_type", "qwen3_vl_text", {"qwen3_vl_text", "qwen3"});
  fields.choice("hidden_act", "silu", {"silu"});
  if (fields.boolean("attention_bias", false)) fields.unsupported("attention_bias", "true", "false");
  if (fields.boolean("use_sliding_window", false)) fields.unsupported("use_sliding_window", "true", "false");
  Qwen3Config config;
  config.vocab_size = fields.integer("vocab_size", config.vocab_size);
  config.hidden_size = fields.integer("hidden_size", config.hidden_size);
  config.intermediate_size = fields.integer("intermediate_size", config.intermediate_size);
  config.num_hidden_layers = fields.integer("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers);
  config.num_attention_heads = fields.integer("num_attention_heads", config.num_attention_heads);
  config.num_key_value_heads = fields.optional_integer("num_key_value_heads").value_or(config.num_attention_heads);
  config.head_dim = fields.integer("head_dim", config.head_dim, 2);
  config.rms_norm_eps = fields.number("rms_norm_eps", config.rms_norm_eps, 0, 1);
  parse_rope(config, text, place);
  fields.check_width("num_attention_heads x head_dim", config.num_attention_heads * config.head_dim);
  fields.require_multiple("num_attention_heads (by num_key_value_heads)", config.num_attention_heads,
                          config.num_key_value_heads);
  fields.require_multiple("head_dim", config.head_dim, 2);
  return config;
}

}  // namespace sparsereel::models
