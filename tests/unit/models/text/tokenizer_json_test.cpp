// Tests that a tokenizer.json gives the same ids as the spiece.model from which it was made, and the error about each
// wrong field.
#include "models/text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/text/tokenizer.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json small_file() {
  return json::parse(R"({
    "model": {"type": "Unigram", "unk_id": 2, "vocab": [["<pad>", 0], ["</s>", 0], ["<s>", 0], ["<unk>", 0],
                                                        ["\u2581", -2], ["\u2581red", -3], ["<x>", 0]]},
    "added_tokens": [{"id": 0, "content": "<pad>"}, {"id": 1, "content": "</s>"}, {"id": 3, "content": "<unk>"},
                     {"id": 6, "content": "<x>"}, {"id": 7, "content": "<new>"}],
    "normalizer": null})");
}

std::vector<int64_t> ids(const json& file, const std::string& text) {
  TokenizerConfig config;
  const SpieceModel model = parse_tokenizer_json(file, config, "tokenizer.json");
  return Tokenizer(model, config, "tokenizer.json").encode(text, 6).ids;
}

std::string complaint(const json& file) {
  try {
    ids(file, "red");
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "none";
}

TEST(TokenizerJson, UsesTheFilesIdsForPiecesAndAddedTokens) {
  EXPECT_THAT(ids(small_file(), "red<x> <new>red"), ElementsAre(5, 6, 7, 5, 1, 0));
  EXPECT_THAT(ids(small_file(), "\u65e5"), ElementsAre(4, 3, 1, 0, 0, 0)) << "the unknown piece, whatever unk_id says";
}

TEST(TokenizerJson, UsesByteFallbackIfAllBytesArePieces) {
  json file = small_file();
  file["added_tokens"].erase(4);
  for (const char high : std::string("0123456789ABCDEF"))
    for (const char low : std::string("0123456789ABCDEF"))
      file["model"]["vocab"].push_back(json::array({std::string("<0x") + high + low + ">", 0}));
  EXPECT_THAT(ids(file, "\u00e9"), ElementsAre(4, 7 + 0xC3, 7 + 0xA9, 1, 0, 0));
}

TEST(TokenizerJson, DecodesAndChecksTheTable) {
  json file = small_file();
  const auto table = [&](const std::string& base64) {
    const json precompiled = {{"type", "Precompiled"}, {"precompiled_charsmap", base64}};
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array({precompiled, {{"type", "Strip"}}})}};
    return complaint(file);
  };
  TokenizerConfig config;
  table("AAECA/8=");
  EXPECT_EQ(parse_tokenizer_json(file, config, "f").precompiled_charsmap, std::string("\0\1\2\3\xFF", 5));
  EXPECT_THAT(table("AAECA/8="), AllOf(HasSubstr("tokenizer.json"), HasSubstr("sizes that do not fit")));
  EXPECT_THAT(table("A!=="), HasSubstr("is not base64"));
}

TEST(TokenizerJson, NamesInvalidFields) {
  const std::pair<const char*, json> cases[] = {
      {"/model/type", "BPE"},
      {"/model/vocab", 7},
      {"/model/vocab/0", json::array({"<pad>"})},
      {"/model/vocab/0/1", "0"},
      {"/added_tokens", 7},
      {"/added_tokens/0/id", "0"},
      {"/added_tokens/0/single_word", true},
      {"/normalizer", {{"type", "Lowercase"}}},
      {"/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", 7}}},
  };
  for (const auto& [place, value] : cases) {
    json file = small_file();
    file[json::json_pointer(place)] = value;
    const std::string field = std::string(place).substr(1, std::string(place).find('/', 1) - 1);
    EXPECT_THAT(complaint(file), AllOf(HasSubstr("tokenizer.json: "), HasSubstr(field))) << place;
  }
  EXPECT_THAT(complaint(json::object()), HasSubstr("model is missing"));
  json file = small_file();
  file["added_tokens"][4]["id"] = 9;
  EXPECT_THAT(complaint(file), HasSubstr("gives \"<new>\" the id 9, not 7"));
}

}  // namespace
}  // namespace sparsereel::models
