// Tests that Qwen3's tensors are found under every naming scheme that its files use.
#include "models/text/encoder/qwen3_names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/qwen3_component.h"

namespace sparsereel::models {
namespace {

TEST(Qwen3Names, MatchThreePrograms) {
  const std::string model = kQwen3Model;
  const std::tuple<std::string, const char*, const char*> names[] = {
      {model + "embed_tokens.weight", "model.embed_tokens.weight", "token_embd.weight"},
      {model + "layers.49.self_attn.q_proj.weight", "model.layers.49.self_attn.q_proj.weight", "blk.49.attn_q.weight"},
      {model + "layers.0.self_attn.o_proj.weight_scale", "model.layers.0.self_attn.o_proj.weight_scale",
       "blk.0.attn_output.weight_scale"},
      {model + "layers.0.self_attn.k_norm.weight", "model.layers.0.self_attn.k_norm.weight",
       "blk.0.attn_k_norm.weight"},
      {model + "layers.7.input_layernorm.weight", "model.layers.7.input_layernorm.weight", "blk.7.attn_norm.weight"},
      {model + "layers.7.post_attention_layernorm.weight", "model.layers.7.post_attention_layernorm.weight",
       "blk.7.ffn_norm.weight"},
      {model + "layers.7.mlp.gate_proj.weight", "model.layers.7.mlp.gate_proj.weight", "blk.7.ffn_gate.weight"},
      {model + "norm.weight", "model.norm.weight", "output_norm.weight"}};
  const StoredNames known = qwen3_names();
  for (const auto& [ours, alone, gguf] : names) {
    EXPECT_EQ(known.others.at(0).second(ours), alone);
    EXPECT_EQ(known.others.at(1).second(ours), gguf);
    EXPECT_EQ(known.others.at(0).first(alone), ours);
    EXPECT_EQ(known.others.at(1).first(gguf), ours);
    EXPECT_EQ(known.others.at(0).first(ours), ours) << "a file in transformers' names stays as it is";
  }
}

TEST(Qwen3Names, ShowTheSizesOfTheConfig) {
  const Component component = test::small_qwen3();
  const Sizes sizes = qwen3_sizes(component.config, "config.json");
  EXPECT_EQ(qwen3_sizes(component.tensors), sizes);
  EXPECT_EQ(sizes.at("vocab_size"), 96);
  EXPECT_EQ(sizes.at("num_key_value_heads x head_dim"), 32);
  EXPECT_EQ(sizes.size(), 6u);
  EXPECT_TRUE(qwen3_sizes(TensorTable()).empty());
}

TEST(Qwen3Names, BelongToThePartsOfAPipeline) {
  EXPECT_EQ(qwen3_vl_part("a.safetensors").classes.front(), "Qwen3VLForConditionalGeneration");
  EXPECT_EQ(qwen3_vl_part("a.safetensors").published, "a.safetensors");
  EXPECT_EQ(qwen3_tokenizer_part("a/b").role, "tokenizer");
  EXPECT_EQ(qwen3_tokenizer_part("a/b").published, "a/b");
}

}  // namespace
}  // namespace sparsereel::models
