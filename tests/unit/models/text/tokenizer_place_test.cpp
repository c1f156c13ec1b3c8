// A tokenizer may be in a folder, in a file, or inside a text encoder's file. Tests that it gives the same ids as
// spiece.model in each place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/tensor_file.h"
#include "models/text/gguf_tokenizer.h"
#include "models/text/tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::read_text;
using test::TemporaryFolder;
using test::throws_error;
using test::write_text;
using Keys = std::map<std::string, std::string>;

const fs::path kSpiece = fs::path(SPARSEREEL_TEST_DATA) / "tokenizer" / "spiece.model";
constexpr int64_t kPieces = 189, kVocabulary = 200;

/// Returns the GGUF key-value pairs that llama.cpp's converter writes for a spiece.model. If the encoder's vocabulary
/// is larger than the model, unused pieces fill it up.
Keys keys_of(const SpieceModel& model, int64_t vocabulary) {
  json tokens, scores, types, table = json::array();
  for (int64_t i = 0; i < vocabulary; ++i) {
    const bool known = i < std::ssize(model.pieces);
    const Piece piece = known ? model.pieces[static_cast<size_t>(i)]
                              : Piece{"[PAD" + std::to_string(i) + "]", -10000, PieceType::unused};
    tokens.push_back(piece.text);
    scores.push_back(piece.score);
    types.push_back(piece.type == PieceType::user_defined ? 1 : static_cast<int>(piece.type));
  }
  for (const char byte : model.precompiled_charsmap) table.push_back(static_cast<uint8_t>(byte));
  return {{"tokenizer.ggml.model", "t5"},
          {"tokenizer.ggml.tokens", tokens.dump()},
          {"tokenizer.ggml.scores", scores.dump()},
          {"tokenizer.ggml.token_type", types.dump()},
          {"tokenizer.ggml.precompiled_charsmap", table.dump()},
          {"tokenizer.ggml.add_space_prefix", json(model.add_dummy_prefix).dump()},
          {"tokenizer.ggml.remove_extra_whitespaces", json(model.remove_extra_whitespaces).dump()}};
}

/// Returns texts of many kinds and the ids that transformers gives for a tokenizer without T5's sentinel tokens.
json golden_cases() {
  std::ifstream file(SPARSEREEL_TEST_DATA "/tokenizer_golden.json");
  const json golden = json::parse(file);
  for (const json& folder : golden["folders"])
    if (folder["name"] == "plain") return folder["cases"];
  return {};
}

void expect_golden_ids(const Tokenizer& tokenizer) {
  const json cases = golden_cases();
  ASSERT_GT(cases.size(), 100U);
  for (const json& each : cases) {
    TokenIds result = tokenizer.encode(each[0].get<std::string>(), 2000);
    result.ids.resize(static_cast<size_t>(result.token_count));
    EXPECT_EQ(result.ids, each[1].get<std::vector<int64_t>>()) << each[0].dump(-1, ' ', true);
  }
}

std::shared_ptr<const TensorFile> file_with_spiece(const fs::path& path, const std::string& name) {
  const std::string bytes = read_text(kSpiece);
  write_safetensors(path, {{.name = name,
                            .dtype = Dtype::u8,
                            .shape = {std::ssize(bytes)},
                            .data = std::as_bytes(std::span(bytes.data(), bytes.size()))}});
  return std::make_shared<TensorFile>(path);
}

TEST(TokenizerPlace, MayBeATensorOfTheModel) {
  const TemporaryFolder folder;
  for (const char* name : {"spiece_model", "text_encoders.umt5xxl.spiece_model"}) {
    const auto place = tokenizer_in(file_with_spiece(folder / "a.safetensors", name));
    ASSERT_TRUE(place);
    const Tokenizer tokenizer = Tokenizer::load(*place);
    EXPECT_EQ(tokenizer.pieces(), kPieces);
    EXPECT_EQ(tokenizer.vocabulary_size(), kPieces) << "no sentinels";
    expect_golden_ids(tokenizer);
  }
  EXPECT_FALSE(tokenizer_in(file_with_spiece(folder / "b.safetensors", "my_spiece_model")));
}

TEST(TokenizerPlace, NamesADamagedTensor) {
  const TemporaryFolder folder;
  const std::string bytes = "\x0a\x7f";
  write_safetensors(
      folder / "a.safetensors",
      {{.name = "spiece_model", .dtype = Dtype::u8, .shape = {2}, .data = std::as_bytes(std::span(bytes))}});
  const auto place = tokenizer_in(std::make_shared<TensorFile>(folder / "a.safetensors"));
  EXPECT_TRUE(throws_error([&] { Tokenizer::load(*place); }, {"a.safetensors: spiece_model is not a whole Sentence"}));
}

/// The key-value pairs of a GGUF file must give the same ids as the spiece.model from which they were made.
TEST(GgufTokenizer, MatchesTheIdsOfTheFile) {
  const SpieceModel model = read_spiece(kSpiece);
  ASSERT_FALSE(model.precompiled_charsmap.empty());
  const SpieceModel read = parse_gguf_tokenizer(keys_of(model, kVocabulary), "a.gguf");
  EXPECT_EQ(std::ssize(read.pieces), kVocabulary);
  expect_golden_ids({read, {.extra_ids = 0, .tokens = {{"</s>"}, {"<unk>"}, {"<pad>"}}}, "a.gguf"});
}

TEST(GgufTokenizer, NamesMissingAndDamagedKeys) {
  const Keys keys = keys_of(read_spiece(kSpiece), kVocabulary);
  for (const auto& [key, value] : keys) {
    if (key == "tokenizer.ggml.model") continue;
    const std::string name = key.substr(std::string("tokenizer.ggml.").size());
    Keys damaged = keys;
    damaged.erase(key);
    EXPECT_TRUE(throws_error([&] { parse_gguf_tokenizer(damaged, "a.gguf"); },
                             {"a.gguf: tokenizer.ggml." + name + " is missing"}));
    for (const char* wrong : {"7", "[{}]", "[", "[300, -1]", "[null]"}) {
      damaged[key] = wrong;
      EXPECT_TRUE(throws_error([&] { parse_gguf_tokenizer(damaged, "a.gguf"); }, {"a.gguf: tokenizer.ggml."}))
          << name << wrong;
    }
  }
  Keys shorter = keys;
  shorter["tokenizer.ggml.scores"] = "[1]";
  EXPECT_TRUE(throws_error([&] { parse_gguf_tokenizer(shorter, "a.gguf"); },
                           {"a.gguf: tokenizer.ggml.tokens differ in number from scores or types"}));
}

TEST(TokenizerPlace, MayBeAFileOrItsFolder) {
  const TemporaryFolder folder;
  fs::copy(kSpiece, folder / "umt5.model");
  const json config = {{"extra_ids", 0}};
  write_text(folder / "tokenizer_config.json", config.dump());
  expect_golden_ids(Tokenizer::load(folder / "umt5.model"));
  EXPECT_TRUE(throws_error([&] { Tokenizer::load(folder.path()); }, {"spiece.model"}));
  fs::rename(folder / "umt5.model", folder / "spiece.model");
  expect_golden_ids(Tokenizer::load(folder.path()));
}

TEST(TokenizerPlace, IsTheClosestTokenizerToTheWeights) {
  const TemporaryFolder folder;
  const fs::path weights = folder / "a.gguf";
  const auto beside = [&] {
    const auto place = tokenizer_beside(weights, "google/umt5-xxl");
    return place ? place->path : fs::path();
  };
  EXPECT_EQ(beside(), fs::path());
  for (const char* place : {"google/umt5-xxl/spiece.model", "tokenizer/tokenizer.json", "spiece.model"}) {
    write_text(folder / place, "x");
    EXPECT_EQ(beside() / fs::path(place).filename(), (folder / "" / place));
  }
}

}  // namespace
}  // namespace sparsereel::models
