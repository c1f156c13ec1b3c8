// Tests which configs of Qwen3 are accepted, with the names of fields in transformers 4 and 5.
#include "models/text/encoder/qwen3_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
using test::throws_error;

TEST(Qwen3Config, HasTheDefaultsOfTransformers) {
  const Qwen3Config config = parse_qwen3_config({{"text_config", json::object()}}, "config.json");
  EXPECT_EQ(config.vocab_size, 151936);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.num_hidden_layers, 32);
  EXPECT_EQ(config.num_key_value_heads, 32);
  EXPECT_EQ(config.rope_theta, 500000);
}

TEST(Qwen3Config, ReadsRotaryFieldsOfBothVersions) {
  const json scaling = {{"rope_type", "default"}, {"mrope_interleaved", true}, {"mrope_section", {24, 20, 20}}};
  json old = {{"rope_theta", 5e6}, {"rope_scaling", scaling}}, recent = {{"rope_parameters", scaling}};
  recent["rope_parameters"]["rope_theta"] = 5e6;
  for (const json& text : {old, recent, json{{"rope_theta", 5e6}, {"rope_scaling", nullptr}}}) {
    EXPECT_EQ(parse_qwen3_config({{"model_type", "qwen3_vl"}, {"text_config", text}}, "config.json").rope_theta, 5e6);
    EXPECT_EQ(parse_qwen3_config(text, "config.json").rope_theta, 5e6) << "a language model alone";
  }
}

TEST(Qwen3Config, NamesFileAndFieldOfWhatIsNotSupported) {
  const std::vector<std::pair<json, std::vector<std::string>>> bad = {
      {{{"attention_bias", true}}, {"attention_bias true"}},
      {{{"use_sliding_window", true}}, {"use_sliding_window"}},
      {{{"hidden_act", "gelu"}}, {"hidden_act \"gelu\" is not supported"}},
      {{{"model_type", "llama"}}, {"model_type", "llama"}},
      {{{"num_attention_heads", 6}, {"num_key_value_heads", 4}}, {"num_attention_heads"}},
      {{{"head_dim", 15}}, {"head_dim"}},
      {{{"hidden_size", "wide"}}, {"hidden_size"}},
      {{{"rope_parameters", {{"rope_type", "yarn"}}}}, {"rope_parameters: rope_type", "yarn"}},
      {{{"rope_scaling", 2}}, {"rope_scaling"}}};
  for (auto [text, words] : bad) {
    words.push_back("a/config.json: text_config");
    EXPECT_TRUE(throws_error([&] { parse_qwen3_config({{"text_config", text}}, "a/config.json"); }, words)) << text;
  }
  EXPECT_TRUE(throws_error([] { parse_qwen3_config(json{{"text_config", 1}}, "a/config.json"); }, {"text_config"}));
  EXPECT_TRUE(throws_error([] { parse_qwen3_config(json::array(), "a/config.json"); }, {"a/config.json"}));
  EXPECT_TRUE(throws_error(
      [] {
        parse_qwen3_config({{"model_type", "llava"}, {"text_config", json::object()}}, "a/config.json");
      },
      {"a/config.json", "model_type", "llava"}));
}

}  // namespace
}  // namespace sparsereel::models
