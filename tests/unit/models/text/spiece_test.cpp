// Tests reading a spiece.model: valid files, files that end early, files with random damage, and files of another kind.
#include "models/text/spiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "hilbert/error.h"
#include "models/text/tokenizer.h"
#include "tests/unit/models/text/spiece_bytes.h"

namespace sparsereel::models {
namespace {

using test::SpieceBytes;
using ::testing::HasSubstr;

std::string small_model() {
  return SpieceBytes().piece("<unk>", 0, 2).piece("\u2581a", -1.5F).piece("b", -2).bytes();
}

std::string complaint_of_file(const std::string& bytes) {
  try {
    const std::string file = "folder/spiece.model";
    trusted_spiece(parse_spiece(bytes, file), file);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Spiece, KeepsOrderScoreAndTypeOfPieces) {
  const SpieceModel model = parse_spiece(small_model(), "spiece.model");
  ASSERT_EQ(model.pieces.size(), 3u);
  EXPECT_EQ(model.pieces[0].type, PieceType::unknown);
  EXPECT_EQ(model.pieces[1].text, "\u2581a");
  EXPECT_EQ(model.pieces[1].score, -1.5F);
  EXPECT_EQ(model.pieces[1].type, PieceType::normal);
}

TEST(Spiece, RefusesOrShortensTruncatedModels) {
  const std::string whole = small_model();
  for (size_t length = 0; length < whole.size(); ++length) {
    try {
      EXPECT_LT(parse_spiece(whole.substr(0, length), "spiece.model").pieces.size(), 3u);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("spiece.model"));
    }
  }
}

TEST(Spiece, NeverReadsOutOfBoundsInDamagedModels) {
  std::ifstream file(std::string(SPARSEREEL_TEST_DATA) + "/tokenizer/spiece.model", std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  const std::string whole = content.str();
  std::mt19937 random(1);
  const std::string text = "cafe\u0301 \uFF21 \u00BD \uFB01 a\u0323\u0302";
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    std::string damaged = whole;
    // Most bytes belong to the normalizer's trie, so random damage changes it, too.
    for (int k = 0; k < 200; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const SpieceModel model = parse_spiece(damaged, "spiece.model");
      Tokenizer(model, {}, "spiece.model").encode(text, 64);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Spiece, NamesFileAndField) {
  EXPECT_THAT(complaint_of_file(""), HasSubstr("folder/spiece.model holds no pieces"));
  EXPECT_THAT(complaint_of_file("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), HasSubstr("a number is too long"));
  EXPECT_THAT(complaint_of_file("\x0A\x7Fxx"), HasSubstr("runs past the end"));
  EXPECT_THAT(complaint_of_file("\x0B"), HasSubstr("unknown wire type"));
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece("", 0).bytes()), HasSubstr("a piece that is empty"));
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece("a", NAN).bytes()), HasSubstr("not a number"));
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece("a\xF0", 0).bytes()), HasSubstr("not UTF-8"));
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece("a", 0).model_type(2).bytes()),
              HasSubstr("trainer_spec.model_type is 2"));
}

TEST(Spiece, RefusesPiecesThatAreUnsafeForSentencePiece) {
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece(std::string("a\0b", 3), 0).bytes()), HasSubstr("contains NUL"));
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece(std::string(1025, 'a'), 0).bytes()),
              HasSubstr("longer than 1024 bytes"));
  EXPECT_EQ(complaint_of_file(SpieceBytes().piece(std::string(1024, 'a'), 0).bytes()), "none");
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece("a", 0, 7).bytes()), HasSubstr("has an unknown type"));
  EXPECT_THAT(complaint_of_file(SpieceBytes().piece("a", 0, 0).bytes()), HasSubstr("has an unknown type"));
  SpieceModel model;
  model.pieces.resize((1 << 20) + 1, {.text = "a"});
  EXPECT_THROW(trusted_spiece(model, "spiece.model"), Error);
}

TEST(Spiece, PassesTheSameModelToSentencePiece) {
  SpieceModel model = parse_spiece(small_model(), "spiece.model");
  model.pieces.push_back({.text = "user's", .type = PieceType::user_defined});
  model.precompiled_charsmap = test::charsmap_of(test::units_that_replace_a(), std::string("b\0", 2));
  model.add_dummy_prefix = model.remove_extra_whitespaces = model.escape_whitespaces = false;
  model.treat_whitespace_as_suffix = model.byte_fallback = true;
  const SpieceModel again = parse_spiece(trusted_spiece(model, "spiece.model"), "trusted");
  ASSERT_EQ(again.pieces.size(), model.pieces.size());
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    EXPECT_EQ(again.pieces[i].text, model.pieces[i].text);
    EXPECT_EQ(again.pieces[i].score, model.pieces[i].score);
  }
  EXPECT_EQ(again.pieces[0].type, PieceType::unknown);
  EXPECT_EQ(again.pieces[3].type, PieceType::normal)
      << "SentencePiece has room for 64 user-defined ones that start alike";
  EXPECT_EQ(again.precompiled_charsmap, model.precompiled_charsmap);
  EXPECT_FALSE(again.add_dummy_prefix || again.remove_extra_whitespaces || again.escape_whitespaces);
  EXPECT_TRUE(again.treat_whitespace_as_suffix && again.byte_fallback);
}

TEST(Spiece, KeepsDenormalizerAndSelfTestFromSentencePiece) {
  const std::string self_test = "\x22\x06\x0A\x04\x0A\x02-!", denormalizer = "\x2A\x04\x12\x02-!";
  const std::string trusted = trusted_spiece(parse_spiece(small_model() + self_test + denormalizer, "a"), "a");
  EXPECT_EQ(trusted.find("-!"), std::string::npos);
  EXPECT_EQ(trusted, trusted_spiece(parse_spiece(small_model(), "a"), "a"));
}

}  // namespace
}  // namespace sparsereel::models
