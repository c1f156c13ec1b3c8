// Compares the tokenizer and the text encoders with transformers. The data come from make_tokenizer.py and
// make_text.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/text/encoder/t5_encoder.h"
#include "models/text/tokenizer.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::close_to;
using test::Golden;
using ::testing::ContainsRegex;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kData = SPARSEREEL_TEST_DATA;

json read_data(const std::string& name) {
  std::ifstream file(kData / name);
  return json::parse(file);
}

/// A folder of this process that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::path(::testing::TempDir()) / ("sparsereel_text_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::vector<json> tokenizer_folders() {
  return read_data("tokenizer_golden.json")["folders"].get<std::vector<json>>();
}

class TokenizerParity : public ::testing::TestWithParam<json> {
 protected:
  TokenizerParity() {
    fs::copy(kData / "tokenizer" / "spiece.model", folder_.path());
    for (const auto& [name, content] : GetParam()["files"].items()) std::ofstream(folder_.path() / name) << content;
  }

  TemporaryFolder folder_;
};

TEST_P(TokenizerParity, GivesTheIdsOfTransformersForEveryString) {
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer.vocabulary_size(), GetParam()["vocabulary_size"].get<int64_t>());
  for (const json& test_case : GetParam()["cases"]) {
    TokenIds result = tokenizer.encode(test_case[0].get<std::string>(), 2000);
    result.ids.resize(result.token_count);
    EXPECT_THAT(result.ids, ElementsAreArray(test_case[1].get<std::vector<int64_t>>()))
        << test_case[0].dump(-1, ' ', true);
    EXPECT_FALSE(result.truncated);
  }
}

TEST_P(TokenizerParity, PadsAndTruncatesAsTransformersDoes) {
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  for (const json& test_case : GetParam()["padded"]) {
    const TokenIds result = tokenizer.encode(test_case[0].get<std::string>(), test_case[1].get<int64_t>());
    EXPECT_THAT(result.ids, ElementsAreArray(test_case[2].get<std::vector<int64_t>>())) << test_case.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, TokenizerParity, ::testing::ValuesIn(tokenizer_folders()),
                         [](const auto& test) { return test.param["name"].template get<std::string>(); });

/// Returns a folder's config.json and model.safetensors as Checkpoint would open them.
Component open_component(const fs::path& folder) {
  Component component;
  component.origin = folder;
  component.config_file = (folder / "config.json").string();
  component.config = read_json(component.config_file);
  component.files = {std::make_shared<TensorFile>(folder / "model.safetensors")};
  for (const TensorEntry& entry : component.files[0]->entries()) component.tensors[entry.name] = {0, &entry};
  return component;
}

class T5Parity : public ::testing::Test {
 protected:
  static T5Encoder load(at::ScalarType dtype) { return T5Encoder::load(open_component(kData / "t5"), at::kCPU, dtype); }

  c10::InferenceMode inference_;
  Golden golden_{"text_golden"};
};

TEST_F(T5Parity, MatchesHiddenStatesInFp32) {
  const at::Tensor hidden = load(at::kFloat).forward(golden_["ids"]);
  EXPECT_TRUE(close_to(hidden, golden_["fp32.hidden"], 2e-6));
}

TEST_F(T5Parity, MatchesHiddenStatesOfLongPromptsThatReachEveryPositionBucket) {
  const at::Tensor hidden = load(at::kFloat).forward(golden_["long_ids"]);
  EXPECT_TRUE(close_to(hidden.slice(1, 0, hidden.size(1), 7), golden_["fp32.long_hidden"], 2e-6));
}

TEST_F(T5Parity, EncodesPromptsInABatchAsItEncodesThemAlone) {
  const T5Encoder encoder = load(at::kFloat);
  const at::Tensor ids = golden_["ids"];
  const at::Tensor alone = at::cat({encoder.forward(ids.slice(0, 0, 1)), encoder.forward(ids.slice(0, 1, 2))});
  EXPECT_TRUE(close_to(encoder.forward(ids), alone, 2e-6));
}

TEST_F(T5Parity, MatchesHiddenStatesInBf16) {
  const at::Tensor hidden = load(at::kBFloat16).forward(golden_["ids"]);
  EXPECT_EQ(hidden.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(close_to(hidden, golden_["bf16.hidden"], 1.5e-2));
}

TEST_F(T5Parity, MatchesHiddenStatesInFp16WithTheLastProjectionInFp32) {
  const T5Encoder encoder = load(at::kHalf);
  EXPECT_EQ(encoder.layers[0].wo.weight.scalar_type(), at::kFloat);
  EXPECT_EQ(encoder.layers[0].wi_0.weight.scalar_type(), at::kHalf);
  const at::Tensor hidden = encoder.forward(golden_["ids"]);
  EXPECT_EQ(hidden.scalar_type(), at::kHalf);
  EXPECT_TRUE(close_to(hidden, golden_["fp16.hidden"], 2e-3));
}

TEST_F(T5Parity, ClampsFp16InfinitiesAsTransformersDoes) {
  T5Encoder encoder = load(at::kHalf);
  encoder.layers[0].attention_out.weight = encoder.layers[0].attention_out.weight * 3e4;
  const at::Tensor hidden = encoder.forward(golden_["ids"]);
  EXPECT_TRUE(at::isfinite(hidden).all().item<bool>());
  EXPECT_TRUE(close_to(hidden, golden_["fp16.clamped_hidden"], 2e-3));
}

/// The bound is wider than for a trained model. This small model's attention is sharper, because its scores are not
/// scaled down.
TEST_F(T5Parity, ErrsLittleWithEightBitWeightsInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const T5Encoder encoder = T5Encoder::load(open_component(kData / "t5"), at::kCPU, {dtype, /*in_fp8=*/true});
    EXPECT_TRUE(encoder.layers[0].wo.is_fp8());
    EXPECT_FALSE(encoder.shared.scalar_type() == at::kFloat8_e4m3fn);
    EXPECT_LT(encoder.weight_bytes(), load(dtype).weight_bytes());
    const at::Tensor hidden = encoder.forward(golden_["ids"]).to(at::kFloat), exact = golden_["fp32.hidden"];
    const double error = ((hidden - exact).abs().sum() / exact.abs().sum()).item<double>();
    RecordProperty(c10::toString(dtype), std::to_string(error));
    EXPECT_GT(error, 1e-3);
    EXPECT_LT(error, 0.12) << dtype;
  }
}

TEST_F(T5Parity, MatchesPositionBucketsForSeveralSizes) {
  constexpr int64_t kLength = 400;
  for (const auto& [buckets, distance] :
       std::vector<std::pair<int64_t, int64_t>>{{32, 128}, {8, 20}, {64, 300}, {32, 64}}) {
    const at::Tensor actual = relative_position_buckets(kLength, buckets, distance);
    // The golden row holds the buckets of distances -399..399. Query i sees keys at distances -i..399-i.
    const at::Tensor row = golden_["buckets." + std::to_string(buckets) + "." + std::to_string(distance)];
    for (const int64_t query : {int64_t{0}, int64_t{57}, kLength - 1}) {
      EXPECT_TRUE(actual[query].equal(row.slice(0, kLength - 1 - query, 2 * kLength - 1 - query)))
          << buckets << " " << distance;
    }
  }
}

class Umt5Parity : public ::testing::Test {
 protected:
  /// Encodes each of two prompts alone and without padding. Compares with the reference, which encodes them in one
  /// padded batch with a mask.
  void expect_both(at::ScalarType dtype, const std::string& name, double tolerance) {
    const T5Encoder encoder = T5Encoder::load(open_component(kData / "umt5"), at::kCPU, dtype);
    const at::Tensor ids = golden_["ids"], brief = golden_[name + ".short"];
    EXPECT_TRUE(close_to(encoder.forward(ids.slice(0, 0, 1).slice(1, 0, brief.size(1))), brief, tolerance));
    EXPECT_TRUE(close_to(encoder.forward(ids.slice(0, 1, 2)), golden_[name + ".long"], tolerance));
  }

  c10::InferenceMode inference_;
  Golden golden_{"umt5_golden"};
};

TEST_F(Umt5Parity, EncodesRealTokensAloneAsUnderAMask) {
  expect_both(at::kFloat, "fp32", 2e-6);
  expect_both(at::kBFloat16, "bf16", 1.5e-2);
  expect_both(at::kHalf, "fp16", 2e-3);
}

TEST_F(Umt5Parity, UsesASeparateBiasInEveryLayer) {
  const T5Encoder encoder = T5Encoder::load(open_component(kData / "umt5"), at::kCPU, at::kFloat);
  EXPECT_FALSE(encoder.layers[0].relative_bias.equal(encoder.layers[1].relative_bias));
  const at::Tensor hidden = encoder.forward(golden_["long_ids"]);  // reaches every position bucket
  EXPECT_TRUE(close_to(hidden.slice(1, 0, hidden.size(1), 7), golden_["fp32.long_hidden"], 2e-6));
}

/// Returns the error of load() for the first `layers` layers of a published encoder, stored as 8-bit integers. load()
/// refuses this type only after it has checked names and shapes. It therefore reads none of the 5 billion parameters,
/// and the file is a hole that takes no disk space.
std::string complaint_about_published_layout(const std::string& names, int64_t layers) {
  const json layout = read_data(names);
  TemporaryFolder folder;
  json header;
  uint64_t offset = 0;
  for (const auto& [name, shape] : layout["tensors"].items()) {
    if (name.starts_with("encoder.block.") && std::stoll(name.substr(14)) >= layers) continue;
    uint64_t bytes = 1;
    for (const json& size : shape) bytes *= size.get<uint64_t>();
    header[name] = {{"dtype", "I8"}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  json config = layout["config"];
  config["num_layers"] = layers;
  std::ofstream(folder.path() / "config.json") << config;
  const fs::path file = folder.path() / "model.safetensors";
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(&length), sizeof(length)) << text;
  fs::resize_file(file, sizeof(length) + length + offset);
  try {
    T5Encoder::load(open_component(folder.path()), at::kCPU, at::kBFloat16);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

/// Expects load() to refuse the type of `of_one_layer` tensors in an encoder with one layer, and of `of_all` tensors in
/// one with all 24 layers, and to complain about nothing else.
void expect_published_layout(const std::string& names, int64_t of_one_layer, int64_t of_all) {
  const std::string one_layer = complaint_about_published_layout(names, 1);  // few enough that all are listed
  EXPECT_THAT(one_layer, HasSubstr(std::to_string(of_one_layer) + " misshaped"));
  EXPECT_THAT(one_layer, HasSubstr("DenseReluDense.wi_0.weight\" is stored as I8"));
  EXPECT_THAT(one_layer, Not(ContainsRegex("missing|unexpected|expected \\[|\\.\\.\\.")));
  const std::string all_layers = complaint_about_published_layout(names, 24);
  EXPECT_THAT(all_layers, HasSubstr(std::to_string(of_all) + " misshaped"));
  EXPECT_THAT(all_layers, Not(ContainsRegex("missing|unexpected|expected \\[")));
}

TEST(T5PublishedLayout, HasTheNamesAndShapesThatLoadExpects) {
  expect_published_layout("t5_names.json", 12, 219);
}

TEST(Umt5PublishedLayout, HasTheNamesAndShapesThatLoadExpects) {
  expect_published_layout("umt5_names.json", 12, 242);
}

}  // namespace
}  // namespace sparsereel::models
