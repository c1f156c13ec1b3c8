// Tables of the tensors' names.
#include "models/text/encoder/qwen3_names.h"

#include <nlohmann/json.hpp>

#include "models/store/checkpoint/tensor_sizes.h"
#include "models/text/encoder/qwen3_config.h"

namespace sparsereel::models {
namespace {

constexpr const char *kQueries = "num_attention_heads x head_dim", *kKeys = "num_key_value_heads x head_dim";

/// Pairs transformers' names with those of another program. `layers` are the layers' names without their prefix.
NameMap::Pairs pairs_of(const std::string& layer_prefix, const NameMap::Pairs& layers, const NameMap::Pairs& others) {
  const std::string model = kQwen3Model;
  NameMap::Pairs pairs;
  for (const auto& [ours, theirs] : layers) pairs.emplace_back(model + "layers.*." + ours, layer_prefix + theirs);
  for (const auto& [ours, theirs] : others) pairs.emplace_back(model + ours, theirs);
  return pairs;
}

NameMap names_alone() {
  NameMap::Pairs layers;
  for (const char* name :
       {"input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
        "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    layers.emplace_back(name, name);
  NameMap::Pairs pairs =
      pairs_of("model.layers.*.", layers, {{"embed_tokens", "model.embed_tokens"}, {"norm", "model.norm"}});
  pairs.emplace_back("model.visual", "visual");
  return {std::move(pairs)};
}

NameMap qwen3_gguf_names() {
  return pairs_of("blk.*.",
                  {{"input_layernorm", "attn_norm"},
                   {"post_attention_layernorm", "ffn_norm"},
                   {"self_attn.q_proj", "attn_q"},
                   {"self_attn.k_proj", "attn_k"},
                   {"self_attn.v_proj", "attn_v"},
                   {"self_attn.o_proj", "attn_output"},
                   {"self_attn.q_norm", "attn_q_norm"},
                   {"self_attn.k_norm", "attn_k_norm"},
                   {"mlp.gate_proj", "ffn_gate"},
                   {"mlp.up_proj", "ffn_up"},
                   {"mlp.down_proj", "ffn_down"}},
                  {{"embed_tokens", "token_embd"}, {"norm", "output_norm"}});
}

}  // namespace

StoredNames qwen3_names() {
  return {.others = {names_alone(), qwen3_gguf_names()},
          .prefixes = {"text_encoders.", "qwen3vl_32b.", "transformer."}};
}

Sizes qwen3_sizes(const nlohmann::json& json, const std::string& file) {
  const Qwen3Config config = parse_qwen3_config(json, file);
  return {{"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"head_dim", config.head_dim},
          {kQueries, config.num_attention_heads * config.head_dim},
          {kKeys, config.num_key_value_heads * config.head_dim}};
}

Sizes qwen3_sizes(const TensorTable& tensors) {
  const std::string model = kQwen3Model, first = model + "layers.0.";
  if (!tensors.contains(first + "self_attn.q_norm.weight")) return {};
  TensorSizes sizes(tensors);
  sizes.add("vocab_size", model + "embed_tokens.weight", 0, 2);
  sizes.add("hidden_size", first + "input_layernorm.weight", 0, 1);
  sizes.add("intermediate_size", first + "mlp.gate_proj.weight", 0, 2);
  sizes.add("head_dim", first + "self_attn.q_norm.weight", 0, 1);
  sizes.add(kQueries, first + "self_attn.q_proj.weight", 0, 2);
  sizes.add(kKeys, first + "self_attn.k_proj.weight", 0, 2);
  return sizes.found();
}

Part qwen3_vl_part(const std::string& published) {
  return {.role = "text_encoder",
          .classes = {"Qwen3VLForConditionalGeneration"},
          .names = qwen3_names(),
          .sizes_by_config = qwen3_sizes,
          .sizes_by_tensors = qwen3_sizes,
          .published = published};
}

Part qwen3_tokenizer_part(const std::string& repository) {
  return {.role = "tokenizer",
          .classes = {"Qwen2TokenizerFast", "Qwen2Tokenizer"},
          .published = repository,
          .tokenizer_files = "tokenizer/vocab.json, tokenizer/merges.txt and tokenizer/tokenizer_config.json"};
}

Part qwen3_processor_part() {
  return {.role = kProcessor, .classes = {"Qwen3VLProcessor"}, .optional = true, .any_class = true};
}

}  // namespace sparsereel::models
