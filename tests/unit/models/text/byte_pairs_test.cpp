// Compares the ids that a small trained vocabulary gives with those of transformers' Qwen2Tokenizer. Also tests the
// error about each inconsistency. tests/parity/make_byte_pairs.py made the data.
#include "models/text/byte_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "models/text/tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::TemporaryFolder;
using test::throws_error;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

const fs::path kData = fs::path(SPARSEREEL_TEST_DATA) / "byte_pairs";

json golden() {
  std::ifstream file(kData / "golden.json");
  return json::parse(file);
}

class BytePairsParity : public ::testing::TestWithParam<json> {};

TEST_P(BytePairsParity, GivesTheIdsOfTransformersForEveryString) {
  const json& folder = GetParam();
  const TemporaryFolder copy;
  if (!folder["files"].contains("tokenizer.json"))
    for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kData / name, copy.path());
  for (const auto& [name, content] : folder["files"].items()) write_text(copy / name, content.get<std::string>());
  const Tokenizer tokenizer = Tokenizer::load(copy.path());
  EXPECT_EQ(tokenizer.vocabulary_size(), folder["vocabulary_size"].get<int64_t>());
  EXPECT_EQ(tokenizer.pieces(), 520);
  const json strings = golden()["strings"];
  ASSERT_EQ(strings.size(), folder["ids"].size());
  for (size_t i = 0; i < strings.size(); ++i) {
    const TokenIds result = tokenizer.encode(strings[i].get<std::string>(), 1000);
    EXPECT_FALSE(result.truncated);
    EXPECT_THAT(std::vector(result.ids.begin(), result.ids.begin() + result.token_count),
                ElementsAreArray(folder["ids"][i].get<std::vector<int64_t>>()))
        << strings[i].dump(-1, ' ', true);
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, BytePairsParity, ::testing::ValuesIn(golden()["folders"].get<std::vector<json>>()),
                         [](const auto& test) { return test.param["name"].template get<std::string>(); });

/// Returns a vocabulary of the symbols of all bytes and the results of two merges.
BytePairModel ab_model() {
  BytePairModel model;
  for (int byte = 0; byte < 256; ++byte) model.vocabulary[byte_symbol(static_cast<uint8_t>(byte))] = byte;
  model.vocabulary["ab"] = 256;
  model.vocabulary["aab"] = 257;
  model.merges = {{"a", "b"}, {"a", "ab"}};
  return model;
}

TokenIds ids(const BytePairModel& model, const TokenizerConfig& config, const std::string& text, int64_t length) {
  return Tokenizer(make_byte_pairs(model, config, "vocab.json")).encode(text, length);
}

TEST(BytePairs, AreMergedInTheOrderOfTheMerges) {
  EXPECT_THAT(ids(ab_model(), {}, "aabab", 3).ids, ElementsAre(257, 256, 0));
  BytePairModel other = ab_model();
  other.merges = {{"a", "a"}, {"a", "b"}};
  other.vocabulary.erase("aab");
  other.vocabulary["aa"] = 257;
  EXPECT_THAT(ids(other, {}, "aabab", 3).ids, ElementsAre(257, 'b', 256));
  EXPECT_THAT(ids(other, {}, "aaa", 2).ids, ElementsAre(257, 'a')) << "the leftmost of equal pairs";
}

TEST(BytePairs, HaveNoEndTokenAndAreCutAndPadded) {
  const TokenizerConfig config = {.pad_token = "<pad>", .tokens = {{.content = "<pad>"}}};
  const TokenIds padded = ids(ab_model(), config, "ab", 3), cut = ids(ab_model(), config, "abxy", 2);
  EXPECT_THAT(padded.ids, ElementsAre(256, 258, 258));
  EXPECT_EQ(padded.token_count, 1);
  EXPECT_FALSE(padded.truncated);
  EXPECT_THAT(cut.ids, ElementsAre(256, 'x'));
  EXPECT_EQ(cut.token_count, 2);
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(ids(ab_model(), config, "", 2).token_count, 0);
}

/// If the whole word were searched for pairs after each merge, this long word would take minutes.
TEST(BytePairs, TakeAWordOfAnyLength) {
  std::string word;
  for (int i = 0; i < 200000; ++i) word += "ab";
  const TokenIds result = ids(ab_model(), {}, word, 1000000);
  EXPECT_EQ(result.token_count, 200000);
}

TEST(BytePairs, HaveASymbolForEachByte) {
  EXPECT_EQ(byte_symbol('a'), "a");
  EXPECT_EQ(byte_symbol(' '), "\u0120");
  EXPECT_EQ(byte_symbol(0), "\u0100");
  EXPECT_EQ(byte_symbol(0xAD), "\u0143");
  EXPECT_EQ(byte_symbol(0xFF), "\u00ff");
}

TEST(BytePairs, NameWhatDoesNotFitTogether) {
  const auto refused = [](const BytePairModel& model, const TokenizerConfig& config,
                          const std::vector<std::string>& words) {
    return throws_error([&] { make_byte_pairs(model, config, "vocab.json"); }, words);
  };
  BytePairModel model = ab_model();
  model.vocabulary["ab"] = 300;
  EXPECT_TRUE(refused(model, {}, {"vocab.json", "\"ab\" has the id 300"}));
  model.vocabulary["ab"] = 255;
  EXPECT_TRUE(refused(model, {}, {"vocab.json", "has the id 255"})) << "twice";
  model = ab_model();
  model.vocabulary["zz"] = model.vocabulary["z"];
  model.vocabulary.erase("z");
  EXPECT_TRUE(refused(model, {}, {"vocab.json: the vocabulary lacks \"z\", which stands for byte 122"}));
  for (const auto& [left, right] : {std::pair("zz", "a"), std::pair("a", "zz"), std::pair("a", "z")}) {
    model = ab_model();
    model.merges.emplace_back(left, right);
    EXPECT_TRUE(refused(model, {}, {"vocab.json: the vocabulary lacks", "which a merge needs"})) << left << right;
  }
  const TokenizerConfig config = {.tokens = {{.content = "<a>", .stated_id = 260}}};
  EXPECT_TRUE(refused(ab_model(), config, {"vocab.json", "\"<a>\" gets the id 258, but its file states 260"}));
}

}  // namespace
}  // namespace sparsereel::models
