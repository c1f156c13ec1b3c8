// Tests YAML files: CogVideoX's files in configs/ match their own models and no other file does, and errors name the
// file and the place. model_of_files_test.cpp tests how models of other families are recognized.
#include "models/store/configs/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "app/options/option_table.h"
#include "hilbert/error.h"
#include "models/families/wan/family.h"
#include "models/request/cache_rule.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"
#include "models/store/configs/data_folder.h"
#include "tests/fuzz/yaml_target.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kClass = "CogVideoXTransformer3DModel";
const fs::path kConfigs = fs::path(SPARSEREEL_SOURCE_DIR) / "configs";

nlohmann::json to_json(const YAML::Node& node) {
  if (node.IsMap()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& entry : node) object[entry.first.Scalar()] = to_json(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    nlohmann::json array = nlohmann::json::array();
    for (const auto& item : node) array.push_back(to_json(item));
    return array;
  }
  if (node.IsNull()) return nullptr;
  const auto parsed = nlohmann::json::parse(node.Scalar(), nullptr, false);
  return parsed.is_discarded() ? nlohmann::json(node.Scalar()) : parsed;
}

/// Returns the ModelSpec of the model that a file in configs/ describes, as reading its checkpoint would give it.
ModelSpec model_of(const std::string& name) {
  const YAML::Node node = YAML::LoadFile((kConfigs / name).string());
  return describe(
      Checkpoint::with_random_weights(name, node["match"]["class"].Scalar(), to_json(node["architecture"])));
}

class ModelConfigs : public ::testing::TestWithParam<const char*> {};

TEST_P(ModelConfigs, MatchTheirOwnArchitecture) {
  const std::string name = GetParam();
  const auto found = find_model_config(kConfigs, model_of(name));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->file.filename(), name);
}

TEST_P(ModelConfigs, HaveValidDefaults) {
  const auto found = find_model_config(kConfigs, model_of(GetParam()));
  ASSERT_TRUE(found.has_value());
  app::Settings settings;
  settings.add(Source::matched_config, found->defaults, found->file.string());
  EXPECT_EQ(settings.whole("steps"), 50);
  EXPECT_EQ(settings.number("cfg_scale"), 6);
}

TEST_P(ModelConfigs, DescribeAModelWithoutAFolder) {
  const Architecture architecture = read_architecture(kConfigs / GetParam());
  EXPECT_EQ(architecture.transformer_class, kClass);
  EXPECT_EQ(architecture.config.defaults.at("steps"), "50");
  const YAML::Node yaml = YAML::LoadFile((kConfigs / GetParam()).string());
  EXPECT_EQ(architecture.components, to_json(yaml["architecture"]));
  const auto folder = Checkpoint::with_random_weights(architecture.config.file, architecture.transformer_class,
                                                      architecture.components);
  EXPECT_EQ(folder.config("vae")["block_out_channels"], nlohmann::json({128, 256, 256, 512}));
}

INSTANTIATE_TEST_SUITE_P(Published, ModelConfigs,
                         ::testing::Values("cogvideox-2b.yaml", "cogvideox-5b.yaml", "cogvideox-1.5-5b.yaml",
                                           "cogvideox-5b-i2v.yaml", "cogvideox-1.5-5b-i2v.yaml"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

class ConfigFiles : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    test::write_text(folder / name, text);
    return folder / name;
  }

  static std::string cause(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder;
  ModelSpec model = model_of("cogvideox-2b.yaml");  // has 30 layers and 30 heads
};

TEST_F(ConfigFiles, DoNotMatchAnUnknownModel) {
  EXPECT_TRUE(find_model_config(kConfigs, model).has_value());
  EXPECT_FALSE(find_model_config(folder / "none", model).has_value());
  ModelSpec other = model;
  other.layers = 7;
  EXPECT_FALSE(find_model_config(kConfigs, other).has_value());
  other = model;
  other.transformer_class = "WanTransformer3DModel";
  EXPECT_FALSE(find_model_config(kConfigs, other).has_value());
  other = model;
  other.fingerprint.clear();  // like that of a family without patch_size_t
  EXPECT_FALSE(find_model_config(kConfigs, other).has_value());
}

TEST_F(ConfigFiles, ReadPresetsAsMapsOfOptions) {
  const auto file = write("a.yaml", "match: {layers: 30}\npresets:\n  fast: {topk: 0.2}\n");
  const auto found = match_model_config(file, model);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->presets.at("fast").values.at("topk"), "0.2");
  EXPECT_EQ(found->presets.at("fast").places.at("topk").value.line, 3);
  write("a.yaml", "match: {layers: 30}\npresets:\n  fast: 2\n");
  EXPECT_THAT(cause([&] { match_model_config(file, model); }), HasSubstr("presets.fast"));
  write("a.yaml", "match: {layers: 30}\npresets:\n  fast: {topk: [1]}\n");
  EXPECT_THAT(cause([&] { match_model_config(file, model); }), HasSubstr("presets.fast.topk"));
  write("a.yaml", "match: {layers: 30}\npresets:\n  fast: {topk: 0.2}\nfew_steps:\n  fast: {topk: 0.3}\n");
  EXPECT_EQ(match_model_config(file, model)->few_steps.at("fast").values.at("topk"), "0.3");
  write("a.yaml", "match: {layers: 30}\npresets:\n  fast: {topk: 0.2}\nfew_steps:\n  fats: {topk: 0.3}\n");
  EXPECT_THAT(cause([&] { match_model_config(file, model); }),
              HasSubstr("few_steps.fats has no counterpart in presets"));
}

TEST_F(ConfigFiles, AreRefusedIfTwoMatch) {
  write("a.yaml", "match: {layers: 30}\n");
  write("b.yaml", "match: {heads: 30}\n");
  const std::string text = cause([&] { find_model_config(folder.path(), model); });
  EXPECT_THAT(text, HasSubstr("a.yaml"));
  EXPECT_THAT(text, HasSubstr("b.yaml"));
}

TEST_F(ConfigFiles, AreReadAgainWhenTheyChange) {
  const auto defaults = [&] { return match_model_config(folder.path() / "a.yaml", model)->defaults; };
  write("a.yaml", "match: {layers: 30}\ndefaults: {steps: 1}\n");
  EXPECT_EQ(defaults().at("steps"), "1");
  write("a.yaml", "match: {layers: 30}\ndefaults: {steps: 2}\n");
  EXPECT_EQ(defaults().at("steps"), "2");
  write("a.yaml", "match: {layers: 30}\ndefaults: {steps: [2]}\n");
  for (int i = 0; i < 2; ++i) EXPECT_THAT(cause(defaults), HasSubstr("a.yaml:2:19: defaults.steps")) << i;
}

TEST_F(ConfigFiles, NameUnknownKeys) {
  const auto match = [&](const std::string& text) {
    const fs::path file = write("m.yaml", text);
    return cause([&] { match_model_config(file, model); });
  };
  EXPECT_THAT(match("match: {layers: 30}\nextra: {a: 1}\n"), HasSubstr("m.yaml:2:1: the key extra"));
  EXPECT_THAT(match("match: {depth: 30}\n"), HasSubstr("m.yaml:1:9: the key match.depth"));
  EXPECT_THAT(match("defaults: {steps: 1}\n"), HasSubstr("match is missing"));
  EXPECT_THAT(match("match: 3\n"), HasSubstr("m.yaml:1:8: match is not a map"));
  EXPECT_THAT(match("match: {layers: 30}\ndefaults: {steps: [1]}\n"), HasSubstr("m.yaml:2:19: defaults.steps"));
}

TEST_F(ConfigFiles, KeepValuesAsText) {
  const auto values = read_config_file(write("c.yaml", "vae_tiling: on\nprompt: 'a: b'\ncfg_scale: 6.0\n")).values;
  EXPECT_EQ(values.at("vae_tiling"), "on");
  EXPECT_EQ(values.at("prompt"), "a: b");
  EXPECT_EQ(values.at("cfg_scale"), "6.0");
  EXPECT_TRUE(read_config_file(write("empty.yaml", "# nothing\n")).values.empty());
}

TEST_F(ConfigFiles, ReportErrorsWithLineAndColumn) {
  EXPECT_THAT(cause([&] { read_config_file(folder / "none.yaml"); }), HasSubstr("none.yaml"));
  const auto config = [&](const std::string& text) {
    return cause([&] {
      const YamlOptions options = parse_config(text, "c.yaml");
      app::Settings().add(Source::config_file, options.values, "c.yaml", options.places);
    });
  };
  for (const auto& [text, wrong] : std::vector<std::pair<std::string, std::string>>{
           {"steps: 3\na: [1\n", "c.yaml:3:1: this is not valid YAML"},
           {"- a\n", "c.yaml:1:1: the file is not a map"},
           {"steps: 1\nsteps: 2\n", "c.yaml:2:1: steps appears twice"},
           {"# first\n\nstepz: 2\n", "c.yaml:3:1: the key stepz is unknown"},
           {"fps: 8\nsteps:   many\n", "c.yaml:2:10: steps many: a whole number"},
           {"{fps: 8, attention: dense}", "c.yaml:1:21: attention dense: one of"},
           {"steps: 1\nnum_inference_steps: 2\n", "is given twice"},
           {"topk: 0.5\ncdf: 0.9\n", "c.yaml:1:7: topk and c.yaml:2:6: cdf exclude"},
           {"size: 64\n", "c.yaml:1:7: size 64 is neither of the form"},
           {"steps:\n  - 1\n", "c.yaml:2:3: steps is not a single value"},
           {"[a]: 1\n", "c.yaml:1:1: a key is not a single word"},
           {"# first\nprompt: caf\xE9\n", "c.yaml:2: this is not UTF-8"},
           {{"\xFF\xFE"
             "a\0:\0",
             6},
            "c.yaml:1: this is not UTF-8"},
           {"steps: 1\n---\nsteps: 2\n", "c.yaml:2:1: a second document"}})
    EXPECT_THAT(config(text), HasSubstr(wrong)) << text;
}

TEST_F(ConfigFiles, AreRefusedIfAliasesMakeAHugeTree) {
  std::string bomb = "match: {class: T}\narchitecture:\n  vae: &a0 [x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "  k" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last + ", " + last + ", " + last + "]\n";
  }
  const std::string circle = "match: {class: T}\narchitecture: &a\n  transformer: *a\n";
  for (const std::string& text : {bomb, circle})
    EXPECT_THAT(cause([&] { parse_architecture(text, "a.yaml"); }), HasSubstr("too deeply or too large"));
}

TEST_F(ConfigFiles, HandleEveryInputOfTheFuzzingCorpus) {
  size_t inputs = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SPARSEREEL_SOURCE_DIR) / "tests/fuzz/corpus/yaml")) {
    SCOPED_TRACE(entry.path().string());
    const std::string text = test::read_text(entry.path());
    test::fuzz_yaml(std::as_bytes(std::span(text)));
    if (entry.path().filename().string().starts_with("valid")) {
      EXPECT_NO_THROW(read_config_file(entry.path()));
    }
    ++inputs;
  }
  EXPECT_GT(inputs, 20U);
}

TEST_F(ConfigFiles, ReadArchitecturesWithTypedValues) {
  const Architecture architecture =
      read_architecture(write("a.yaml",
                              "match: {class: T}\narchitecture:\n  transformer: {a: 1, b: 1.5, c: true, "
                              "d: null, e: x, f: '2', g: [1, 2], h: 1.0e-5}\n"));
  EXPECT_EQ(
      architecture.components["transformer"],
      nlohmann::json::parse(R"({"a": 1, "b": 1.5, "c": true, "d": null, "e": "x", "f": "2", "g": [1, 2], "h": 1e-5})"));
  EXPECT_TRUE(architecture.config.defaults.empty());
}

TEST_F(ConfigFiles, ReportAMissingArchitecture) {
  for (const auto& [text, word] : {std::pair("match: {class: T}\n", "architecture"),
                                   std::pair("match: {layers: 2}\narchitecture: {vae: {}}\n", "match.class"),
                                   std::pair("architecture: {vae: {}}\n", "match")}) {
    const fs::path file = write("a.yaml", text);
    EXPECT_TRUE(test::throws_error([&] { read_architecture(file); }, {file.string(), word})) << text;
  }
}

}  // namespace
}  // namespace sparsereel::models
