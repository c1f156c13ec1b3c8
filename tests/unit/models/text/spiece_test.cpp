// Reading spiece.model: whole, damaged in every place, and of the wrong kind.
#include "models/text/spiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "hilbert/error.h"
#include "models/text/normalizer.h"
#include "tests/unit/models/text/spiece_bytes.h"

namespace sparsereel::models {
namespace {

using test::SpieceBytes;
using ::testing::HasSubstr;

std::string small_model() {
  return SpieceBytes().piece("<unk>", 0, 2).piece("\u2581a", -1.5F).piece("b", -2).bytes();
}

std::string complaint(const std::string& bytes) {
  try {
    parse_spiece(bytes, "folder/spiece.model");
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Spiece, PiecesKeepOrderScoreAndType) {
  const SpieceModel model = parse_spiece(small_model(), "spiece.model");
  ASSERT_EQ(model.pieces.size(), 3u);
  EXPECT_EQ(model.pieces[0].type, PieceType::unknown);
  EXPECT_EQ(model.pieces[1].text, "\u2581a");
  EXPECT_EQ(model.pieces[1].score, -1.5F);
  EXPECT_EQ(model.pieces[1].type, PieceType::normal);
}

TEST(Spiece, CutAnywhereIsAnErrorOrAShorterModel) {
  const std::string whole = small_model();
  for (size_t length = 0; length < whole.size(); ++length) {
    try {
      EXPECT_LT(parse_spiece(whole.substr(0, length), "spiece.model").pieces.size(), 3u);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("spiece.model"));
    }
  }
}

TEST(Spiece, RandomDamageNeverReadsOutOfBounds) {
  std::ifstream file(std::string(SPARSEREEL_TEST_DATA) + "/tokenizer/spiece.model", std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  const std::string whole = content.str();
  std::mt19937 random(1);
  const std::string text = "cafe\u0301 \uFF21 \u00BD \uFB01 a\u0323\u0302";
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    std::string damaged = whole;
    // Most bytes belong to the normaliser's trie, so that it gets damaged too.
    for (int k = 0; k < 200; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const SpieceModel model = parse_spiece(damaged, "spiece.model");
      Normalizer(model.precompiled_charsmap, "spiece.model").normalize(text);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Spiece, ErrorsNameFileAndField) {
  EXPECT_THAT(complaint(""), HasSubstr("folder/spiece.model holds no pieces"));
  EXPECT_THAT(complaint("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), HasSubstr("a number is too long"));
  EXPECT_THAT(complaint("\x0A\x7Fxx"), HasSubstr("runs past the end"));
  EXPECT_THAT(complaint("\x0B"), HasSubstr("unknown wire type"));
  EXPECT_THAT(complaint(SpieceBytes().piece("", 0).bytes()), HasSubstr("empty piece"));
  EXPECT_THAT(complaint(SpieceBytes().piece("a", NAN).bytes()), HasSubstr("not a number"));
  EXPECT_THAT(complaint(SpieceBytes().piece("a\xF0", 0).bytes()), HasSubstr("not UTF-8"));
  EXPECT_THAT(complaint(SpieceBytes().piece("a", 0).model_type(2).bytes()), HasSubstr("trainer_spec.model_type is 2"));
}

TEST(Spiece, CharsmapThatDoesNotFitIsRefused) {
  for (const std::string charsmap : {"x", "\x08", "\xFF\xFF\xFF\x7F----"}) {
    EXPECT_THROW(Normalizer(charsmap, "spiece.model"), Error);
  }
}

TEST(Spiece, ReplacementsAreWholeCharacters) {
  const auto normalizer = [](const std::string& replacements, uint32_t place) {
    const std::string bytes = SpieceBytes().piece("b", 0).replace_a(replacements, place).bytes();
    return Normalizer(parse_spiece(bytes, "spiece.model").precompiled_charsmap, "spiece.model");
  };
  EXPECT_EQ(normalizer(std::string("\u00E9\0", 3), 0).normalize("bab"), "b\u00E9b");
  EXPECT_EQ(normalizer(std::string("\u00E9\0", 3), 1).normalize("bab"), "bab") << "from the middle of a character on";
  EXPECT_EQ(normalizer(std::string("\u00E9\0", 3), 9).normalize("bab"), "bab") << "from beyond the end on";
  for (const std::string cut : {"\xF0", "\xE2\x96", "\xFF", "\x80"}) EXPECT_THROW(normalizer(cut, 0), Error) << cut;
}

}  // namespace
}  // namespace sparsereel::models
