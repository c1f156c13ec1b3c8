// Tests reading a LoRA's alphas if they are stored in metadata or in PEFT's config file instead of tensors.
#include "models/store/checkpoint/lora_settings.h"

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::throws_error;
using Metadata = std::map<std::string, std::string>;

std::optional<double> alpha(const Metadata& metadata, const std::string& part = "transformer",
                            const std::string& layer = "blocks.0.attn1.to_q") {
  return LoraSettings("a.safetensors", metadata).alpha(part, layer);
}

Metadata of_diffusers(const std::string& text) {
  return {{"lora_adapter_metadata", text}};
}

TEST(LoraSettings, ReadAlphaFromTheHeader) {
  for (const char* key : {"alpha", "lora_alpha", "network_alpha"}) {
    EXPECT_EQ(alpha({{key, "2"}}), 2) << key;
    EXPECT_EQ(alpha({{key, "0.5"}, {"rank", "4"}}, ""), 0.5) << key;
    for (const char* text : {"", "much", "2x", "None", "nan", "1e300"})
      EXPECT_TRUE(throws_error(
          [&] {
            alpha({{key, text}});
          },
          {"a.safetensors: ", key, "not a finite 32-bit number"}))
          << text;
  }
  EXPECT_FALSE(alpha({{"format", "pt"}, {"rank", "4"}}));
}

TEST(LoraSettings, RefuseContradictingAlphas) {
  const auto refused = [](const Metadata& metadata, const char* said) {
    return throws_error([&] { alpha(metadata); }, {"a.safetensors: ", said});
  };
  EXPECT_TRUE(refused({{"alpha", "2"}, {"lora_adapter_metadata", R"({"transformer.lora_alpha": 3})"}},
                      "alpha 2 contradicts lora_adapter_metadata: lora_alpha 3"));
  EXPECT_TRUE(refused({{"alpha", "2"}, {"network_alpha", "4"}}, "alpha 2 contradicts"));
  EXPECT_EQ(alpha({{"alpha", "3.0"}, {"lora_adapter_metadata", R"({"transformer.lora_alpha": 3})"}}), 3);
  // A pattern may have another alpha, because it applies only to the layers that it matches.
  EXPECT_EQ(alpha({{"alpha", "2"}, {"lora_adapter_metadata", R"({"transformer.alpha_pattern": {"to_q": 8}})"}}), 8);
}

TEST(LoraSettings, DifferByModelPart) {
  const Metadata metadata = of_diffusers(R"({"transformer.lora_alpha": 3, "text_encoder.lora_alpha": 5,
                                             "text_encoder.use_rslora": true})");
  EXPECT_EQ(alpha(metadata), 3);
  EXPECT_EQ(alpha(metadata, "text_encoder"), 5);
  EXPECT_FALSE(alpha(metadata, "transformer_2"));
  const LoraSettings settings("a.safetensors", metadata);
  EXPECT_TRUE(settings.uses_rslora("text_encoder"));
  EXPECT_FALSE(settings.uses_rslora("transformer"));
}

/// PEFT matches with re.match(rf"(.*\.)?({pattern})$", name) in get_pattern_key().
TEST(LoraSettings, MatchPatternsLikePeft) {
  const auto fits = [](const std::string& pattern, const std::string& layer) {
    return alpha(of_diffusers(nlohmann::json({{"transformer.alpha_pattern", {{pattern, 8}}}}).dump()), "transformer",
                 layer) == 8;
  };
  for (const char* pattern :
       {"to_q", "attn1.to_q", "blocks.0.attn1.to_q", "^blocks.0.attn1.to_q", R"(blocks\.\d+\.attn[12]\.to_q)",
        "to_[qk]", "to_q|to_k", "attn..to_q", R"(^blocks\.0\..*)", R"(^blocks\.0\.attn1\.to_q)", R"(attn1\.to_q)", ".*",
        "(to_q)", "to_q$", "blocks.*to_q", "b?to_q"})
    EXPECT_TRUE(fits(pattern, "blocks.0.attn1.to_q")) << pattern;
  for (const char* pattern :
       {"to_k", "o_q", "^attn1.to_q", "^to_q", "to_q.0", R"(blocks\.\d+)", "to_[kv]", "to", "blocks.0.attn1.to_q.x", "",
        R"(x\.to_q)", R"(attn1\..to_q)", R"(attn\.\.to_q)", "^0.attn1.to_q", R"(^attn1\.to_[q])"})
    EXPECT_FALSE(fits(pattern, "blocks.0.attn1.to_q")) << pattern;
  EXPECT_TRUE(fits("^to_q", "to_q"));
}

TEST(LoraSettings, UseTheGeneralAlphaForLayersWithoutAPattern) {
  const Metadata metadata = of_diffusers(
      R"({"transformer.lora_alpha": 4, "transformer.alpha_pattern": {"^blocks.0.attn1.to_q": 8, "to_[v]": 2}})");
  EXPECT_EQ(alpha(metadata), 8);
  EXPECT_EQ(alpha(metadata, "transformer", "blocks.1.attn1.to_v"), 2);
  EXPECT_EQ(alpha(metadata, "transformer", "blocks.1.attn1.to_q"), 4);
}

TEST(LoraSettings, NameAnUnreadablePattern) {
  for (const std::string& pattern : {std::string("("), std::string("(?P<a>to_q)"), std::string("(a)\\1"),
                                     std::string("a{1000}"), "(" + std::string(600, 'a') + ")"})
    EXPECT_TRUE(throws_error(
        [&] {
          alpha(of_diffusers(nlohmann::json({{"transformer.alpha_pattern", {{pattern, 8}}}}).dump()));
        },
        {"a.safetensors: lora_adapter_metadata: alpha_pattern ", pattern.substr(0, 1), "cannot be read"}))
        << pattern;
}

TEST(LoraSettings, AllowManyPlainNamesButNotManyExpressions) {
  nlohmann::json names, expressions;
  for (int i = 0; i < 3000; ++i) {
    names[R"(^blocks\.)" + std::to_string(i) + R"(\.attn1\.to_k)"] = 2;
    expressions["blocks." + std::to_string(i) + ".*to_k"] = 2;
  }
  EXPECT_FALSE(alpha(of_diffusers(nlohmann::json({{"transformer.alpha_pattern", names}}).dump())));
  EXPECT_TRUE(throws_error(
      [&] {
        alpha(of_diffusers(nlohmann::json({{"transformer.alpha_pattern", expressions}}).dump()));
      },
      {"cannot be read"}));
}

TEST(LoraSettings, MatchExpressionsQuickly) {
  const std::string layer(200, 'a');
  EXPECT_FALSE(
      alpha(of_diffusers(R"({"transformer.alpha_pattern": {"((a|a)*)*(a*)*b": 8}})"), "transformer", layer + "c"));
}

TEST(LoraSettings, ReadPeftsAdapterConfig) {
  const test::TemporaryFolder folder;
  const auto write = [&](const std::string& text) { test::write_text(folder / "adapter_config.json", text); };
  const auto settings = [&](const char* file) { return LoraSettings(folder / file, {}); };
  write(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 2, "alpha_pattern": {"to_k": 1}, "use_rslora": true})");
  EXPECT_EQ(settings("adapter_model.safetensors").alpha("", "blocks.0.to_q"), 2);
  EXPECT_EQ(settings("adapter_model.safetensors").alpha("transformer", "blocks.0.to_k"), 1);
  EXPECT_TRUE(settings("adapter_model.bin").uses_rslora(""));
  EXPECT_FALSE(settings("style.safetensors").alpha("", "blocks.0.to_q")) << "another file's";
  write(R"({"use_dora": true})");
  EXPECT_EQ(settings("adapter_model.safetensors").file_with_dora(""), (folder / "adapter_config.json").string());
  for (const auto& [text, words] : {std::pair("{", "adapter_config.json"),
                                    {"[1]", "is not a JSON object"},
                                    {R"({"lora_alpha": "2"})", "lora_alpha is \"2\", not a finite 32-bit number"}}) {
    write(text);
    EXPECT_TRUE(throws_error([&] { settings("adapter_model.safetensors").alpha("", "to_q"); },
                             {(folder / "adapter_config.json").string(), words}))
        << text;
  }
}

}  // namespace
}  // namespace sparsereel::models
