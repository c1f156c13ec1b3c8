// Tests that both kinds of files, vocab.json with merges.txt and tokenizer.json, give the same tokenizer. Also tests
// the error about each wrong field. byte_pairs_test.cpp compares the ids with transformers.
#include "models/text/byte_pair_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "models/store/checkpoint/tokenizer_place.h"
#include "models/text/split_words.h"
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
using ::testing::Pair;

const fs::path kBytePairData = fs::path(SPARSEREEL_TEST_DATA) / "byte_pairs";

json small_tokenizer_json() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_symbol(static_cast<uint8_t>(byte))] = byte;
  vocabulary["ab"] = 256;
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(kWordPattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b"}}, {"dropout", nullptr}}},
          {"added_tokens", {{{"id", 257}, {"content", "<x>"}}, {{"id", 258}, {"content", "<y>"}, {"lstrip", true}}}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}}};
}

TEST(BytePairJson, HoldsTheVocabularyAndAddedTokens) {
  TokenizerConfig config = {.tokens = {{.content = "<z>"}}};
  json file = small_tokenizer_json();
  const BytePairModel model = parse_byte_pair_json(file, config, "tokenizer.json");
  EXPECT_EQ(model.vocabulary.at("ab"), 256);
  EXPECT_THAT(model.merges, ElementsAre(Pair("a", "b")));
  ASSERT_EQ(config.tokens.size(), 3u);
  EXPECT_EQ(config.tokens[0].content, "<x>");
  EXPECT_EQ(config.tokens[0].stated_id, 257);
  EXPECT_TRUE(config.tokens[1].lstrip);
  EXPECT_EQ(config.tokens[2].content, "<z>");
  file["model"]["merges"] = json::array({json::array({"a", "b"})});
  EXPECT_EQ(parse_byte_pair_json(file, config, "tokenizer.json").merges, model.merges);
}

TEST(BytePairJson, NamesTheFieldOfADamagedFile) {
  const std::vector<std::pair<json, std::string>> patches = {
      {{{"model", 1}}, "type is missing"},
      {{{"model", {{"type", "WordPiece"}}}}, "model.type is not \"BPE\""},
      {{{"model", {{"vocab", 1}}}}, "model.vocab is not an object"},
      {{{"model", {{"vocab", {{"a", "b"}}}}}}, "model.vocab gives \"a\" no id"},
      {{{"model", {{"vocab", {{"a", -1}}}}}}, "model.vocab gives \"a\" no id"},
      {{{"model", {{"merges", 1}}}}, "model.merges is not a list"},
      {{{"model", {{"merges", {"ab"}}}}}, "model.merges holds an entry that is not a pair"},
      {{{"model", {{"merges", {{"a", "b", "c"}}}}}}, "model.merges holds an entry that is not a pair"},
      {{{"model", {{"end_of_word_suffix", "</w>"}}}}, "model.end_of_word_suffix is \"</w>\""},
      {{{"model", {{"byte_fallback", true}}}}, "model.byte_fallback is true"},
      {{{"added_tokens", 1}}, "added_tokens is not a list"},
      {{{"added_tokens", {1}}}, "content is missing"},
      {{{"added_tokens", {{{"content", ""}, {"id", 1}}}}}, "added_tokens holds an entry that is not a token"},
      {{{"added_tokens", {{{"content", "a"}, {"id", 1}, {"single_word", true}}}}},
       "added_tokens holds a single_word token"},
      {{{"normalizer", {{"type", "NFKC"}}}}, "normalizer is not"},
      {{{"pre_tokenizer", {{"pretokenizers", 1}}}}, "pre_tokenizer does not split words"},
      {{{"pre_tokenizer", nullptr}}, "pre_tokenizer is missing"}};
  for (const auto& [patch, complaint] : patches) {
    json file = small_tokenizer_json();
    file.merge_patch(patch);
    TokenizerConfig config;
    EXPECT_TRUE(throws_error([&] { parse_byte_pair_json(file, config, "a.json"); }, {"a.json: " + complaint})) << patch;
  }
  for (const auto& [step, field, value] :
       {std::tuple(0, "behavior", json("Removed")), std::tuple(0, "invert", json(true)),
        std::tuple(1, "use_regex", json(true)), std::tuple(1, "type", json("Metaspace"))}) {
    json file = small_tokenizer_json();
    file["pre_tokenizer"]["pretokenizers"][step][field] = value;
    TokenizerConfig config;
    EXPECT_TRUE(throws_error([&] { parse_byte_pair_json(file, config, "a.json"); }, {"a.json: pre_tokenizer"}))
        << field;
  }
}

TEST(BytePairFiles, AreVocabularyAndMerges) {
  const BytePairModel model =
      parse_byte_pairs({{"a", 0}, {"#", 1}, {"a#", 2}}, "#version: 0.2\r\na #\n\n# #\n", "vocab.json", "merges.txt");
  EXPECT_EQ(model.vocabulary.size(), 3u);
  EXPECT_THAT(model.merges, ElementsAre(Pair("a", "#"), Pair("#", "#")));
}

TEST(BytePairFiles, NameFileAndLineOfDamage) {
  for (const char* line : {"ab", "a b c"})
    EXPECT_TRUE(throws_error(
        [&] {
          parse_byte_pairs({{"a", 0}}, "a a\n" + std::string(line), "v.json", "m.txt");
        },
        {"m.txt:2: \"" + std::string(line) + "\" is not a pair"}));
  EXPECT_TRUE(throws_error([&] { parse_byte_pairs(json::array(), "", "v.json", "m.txt"); },
                           {"v.json: the content is not an object"}));
}

/// In a folder with several tokenizers, the first of these is used: spiece.model, vocab.json with merges.txt,
/// tokenizer.json.
TEST(BytePairFiles, AreFoundByFolderOrName) {
  const TemporaryFolder folder;
  json other = small_tokenizer_json();
  write_text(folder / "tokenizer.json", other.dump());
  EXPECT_EQ(Tokenizer::load(folder.path()).pieces(), 257);
  fs::copy(kBytePairData / "vocab.json", folder / "vocab.json");
  EXPECT_EQ(Tokenizer::load(folder.path()).pieces(), 257) << "without its merges";
  EXPECT_TRUE(throws_error([&] { Tokenizer::load(folder / "vocab.json"); }, {"merges.txt"}));
  fs::copy(kBytePairData / "merges.txt", folder / "merges.txt");
  for (const char* name : {"", "vocab.json", "merges.txt"}) {
    EXPECT_EQ(Tokenizer::load(folder / name).pieces(), 520) << name;
    EXPECT_THAT(files_of({folder / name}), ElementsAre(folder / "vocab.json", folder / "merges.txt")) << name;
  }
  EXPECT_EQ(Tokenizer::load(folder / "tokenizer.json").pieces(), 257);
  EXPECT_THAT(files_of({folder / "tokenizer.json"}), ElementsAre(folder / "tokenizer.json"));
}

TEST(BytePairFiles, AreRefusedIfTheConfigNumbersTokensOtherwise) {
  const TemporaryFolder folder;
  for (const char* name : {"vocab.json", "merges.txt"}) fs::copy(kBytePairData / name, folder.path());
  write_text(folder / "tokenizer_config.json", R"({"added_tokens_decoder": {"520": {"content": "<a>"}}})");
  EXPECT_EQ(Tokenizer::load(folder.path()).vocabulary_size(), 522) << "with <|endoftext|>, the class's own";
  write_text(folder / "tokenizer_config.json", R"({"added_tokens_decoder": {"521": {"content": "<a>"}}})");
  EXPECT_TRUE(throws_error([&] { Tokenizer::load(folder.path()); },
                           {"vocab.json", "\"<a>\" gets the id 520, but its file states 521"}));
  write_text(folder / "vocab.json", "{\"a\": 0");
  EXPECT_TRUE(throws_error([&] { Tokenizer::load(folder.path()); }, {"vocab.json"}));
}

}  // namespace
}  // namespace sparsereel::models
