// Tables of the tensors' names, and the parts of T5, mT5 and UMT5.
#include "models/text/encoder/t5_names.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/store/checkpoint/tensor_sizes.h"
#include "models/store/checkpoint/tokenizer_place.h"
#include "models/text/encoder/t5_config.h"

namespace sparsereel::models {
namespace {

constexpr const char *kEncoderInner = "num_heads x d_kv", *kBiases = "layers with a relative bias";
const std::string kBlock = "encoder.block.", kFirst = kBlock + "0.layer.",
                  kBias = ".layer.0.SelfAttention.relative_attention_bias.weight";

/// Returns pairs of names of a block's layers: ours, and another program's, which begin with `block`.
NameMap::Pairs layers_of(const std::string& block, const NameMap::Pairs& names) {
  NameMap::Pairs pairs;
  for (const auto& [ours, theirs] : names) pairs.emplace_back("encoder.block.*.layer." + ours, block + theirs);
  return pairs;
}

NameMap named(NameMap::Pairs pairs, const NameMap::Pairs& ends) {
  pairs.insert(pairs.end(), ends.begin(), ends.end());
  return {std::move(pairs)};
}

NameMap authors_names() {
  return named(layers_of("blocks.*.", {{"0.SelfAttention.q", "attn.q"},
                                       {"0.SelfAttention.k", "attn.k"},
                                       {"0.SelfAttention.v", "attn.v"},
                                       {"0.SelfAttention.o", "attn.o"},
                                       {"0.SelfAttention.relative_attention_bias", "pos_embedding.embedding"},
                                       {"0.layer_norm", "norm1"},
                                       {"1.layer_norm", "norm2"},
                                       {"1.DenseReluDense.wi_0", "ffn.gate.0"},
                                       {"1.DenseReluDense.wi_1", "ffn.fc1"},
                                       {"1.DenseReluDense.wo", "ffn.fc2"}}),
               {{"shared", "token_embedding"}, {"encoder.final_layer_norm", "norm"}});
}

NameMap gguf_names() {
  return named(layers_of("enc.blk.*.", {{"0.SelfAttention.q", "attn_q"},
                                        {"0.SelfAttention.k", "attn_k"},
                                        {"0.SelfAttention.v", "attn_v"},
                                        {"0.SelfAttention.o", "attn_o"},
                                        {"0.SelfAttention.relative_attention_bias", "attn_rel_b"},
                                        {"0.layer_norm", "attn_norm"},
                                        {"1.layer_norm", "ffn_norm"},
                                        {"1.DenseReluDense.wi_0", "ffn_gate"},
                                        {"1.DenseReluDense.wi_1", "ffn_up"},
                                        {"1.DenseReluDense.wo", "ffn_down"}}),
               {{"shared", "token_embd"}, {"encoder.final_layer_norm", "enc.output_norm"}});
}

Part encoder_part(const char* class_name, const char* published) {
  return {.role = "text_encoder",
          .classes = {class_name},
          .names = t5_names(),
          .sizes_by_config = t5_sizes,
          .sizes_by_tensors = t5_sizes,
          .published = published};
}

}  // namespace

StoredNames t5_names() {
  return {.others = {authors_names(), gguf_names()},
          .prefixes = {"text_encoders.", "umt5xxl.", "t5xxl.", "transformer."},
          .no_weights = {kSpieceTensor, "scaled_fp8"}};
}

Sizes t5_sizes(const nlohmann::json& json, const std::string& file) {
  const T5Config config = parse_t5_config(json, file);
  return {{"vocab_size", config.vocab_size},
          {"d_model", config.d_model},
          {"d_ff", config.d_ff},
          {"num_layers", config.num_layers},
          {kEncoderInner, config.num_heads * config.d_kv},
          {kBiases, config.bias_per_layer ? config.num_layers : 1}};
}

Sizes t5_sizes(const TensorTable& tensors) {
  TensorSizes sizes(tensors);
  for (const char* embedding : {"encoder.embed_tokens.weight", "shared.weight"}) {
    sizes.add("vocab_size", embedding, 0, 2);
    sizes.add("d_model", embedding, 1, 2);
  }
  sizes.add("d_ff", kFirst + "1.DenseReluDense.wi_0.weight", 0, 2);
  sizes.add(kEncoderInner, kFirst + "0.SelfAttention.q.weight", 0, 2);
  if (sizes.found().empty()) return {};
  sizes.add_blocks("num_layers", kBlock);
  Sizes found = sizes.found();
  found[kBiases] = std::ranges::count_if(
      tensors, [](const auto& tensor) { return tensor.first.starts_with(kBlock) && tensor.first.ends_with(kBias); });
  return found;
}

Part t5_part() {
  return encoder_part("T5EncoderModel",
                      "t5xxl_fp16.safetensors, t5xxl_fp8_e4m3fn_scaled.safetensors or t5-v1_1-xxl-encoder-Q8_0.gguf");
}

Part t5_tokenizer_part() {
  return {.role = "tokenizer", .classes = {"T5Tokenizer", "T5TokenizerFast"}, .published = "google/t5-v1_1-xxl"};
}

Part mt5_part() {
  return encoder_part("MT5EncoderModel", "google/mt5-xxl's pytorch_model.bin");
}

Part mt5_tokenizer_part() {
  return {.role = "tokenizer", .classes = {"T5TokenizerFast", "T5Tokenizer"}, .published = "google/mt5-xxl"};
}

Part umt5_part() {
  return encoder_part("UMT5EncoderModel",
                      "umt5_xxl_fp8_e4m3fn_scaled.safetensors, models_t5_umt5-xxl-enc-bf16.pth or "
                      "umt5-xxl-encoder-Q8_0.gguf");
}

Part umt5_tokenizer_part() {
  return {.role = "tokenizer", .classes = {"T5TokenizerFast", "T5Tokenizer"}, .published = "google/umt5-xxl"};
}

}  // namespace sparsereel::models
