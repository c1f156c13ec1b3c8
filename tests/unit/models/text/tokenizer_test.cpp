// Tests properties of the tokenizer that tests/parity does not compare: padding, flags of truncated texts, and a single
// clear error for each faulty folder.
#include "models/text/tokenizer.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "hilbert/error.h"
#include "tests/unit/models/text/spiece_bytes.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::SpieceBytes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TokenizerTest : public ::testing::Test {
 protected:
  TokenizerTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    // The ids are 0 for padding, 1 for the end, 2 for unknown pieces, and 3, 4 and 5 for the other pieces.
    write("spiece.model", SpieceBytes()
                              .piece("<pad>", 0, 3)
                              .piece("</s>", 0, 3)
                              .piece("<unk>", 0, 2)
                              .piece("\u2581", -2)
                              .piece("\u2581red", -3)
                              .piece("ed", -4)
                              .bytes());
  }
  ~TokenizerTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }

  std::string load_error() const {
    try {
      Tokenizer::load(folder_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    return "none";
  }

  fs::path folder_ = fs::path(::testing::TempDir()) / ("sparsereel_tokenizer_" + std::to_string(getpid()));
};

TEST_F(TokenizerTest, PadsToTheRequestedLength) {
  const TokenIds ids = Tokenizer::load(folder_).encode("red red", 5);
  EXPECT_THAT(ids.ids, ElementsAre(4, 4, 1, 0, 0));
  EXPECT_EQ(ids.token_count, 3);
  EXPECT_FALSE(ids.truncated);
}

TEST_F(TokenizerTest, GivesAWholePromptWithoutPadding) {
  const Tokenizer tokenizer = Tokenizer::load(SPARSEREEL_TEST_DATA "/minimax_h3/pipeline/tokenizer");
  const TokenIds ids = tokenizer.encode_whole("a red car <d>hi</d>");
  EXPECT_THAT(ids.ids, ElementsAre(64, 259, 260, 256, 220, 270, 71, 72, 271)) << "those of transformers";
  EXPECT_EQ(ids.token_count, 9);
  EXPECT_FALSE(ids.truncated);
  EXPECT_TRUE(tokenizer.encode_whole("").ids.empty());
  EXPECT_THROW(tokenizer.encode_whole("\xff"), Error);
}

TEST_F(TokenizerTest, KeepsEosWhenTruncating) {
  const Tokenizer tokenizer = Tokenizer::load(folder_);
  const TokenIds ids = tokenizer.encode("red red red", 3);
  EXPECT_THAT(ids.ids, ElementsAre(4, 4, 1));
  EXPECT_TRUE(ids.truncated);
  EXPECT_FALSE(tokenizer.encode("red red", 3).truncated);
  EXPECT_THAT(tokenizer.encode("red", 1).ids, ElementsAre(1));
  EXPECT_THAT(tokenizer.encode("", 1).ids, ElementsAre(1));
  EXPECT_FALSE(tokenizer.encode("", 1).truncated);
}

TEST_F(TokenizerTest, PutsSentinelsAfterPiecesInDescendingOrder) {
  write("tokenizer_config.json", R"({"extra_ids": 2})");
  const Tokenizer tokenizer = Tokenizer::load(folder_);
  EXPECT_EQ(tokenizer.vocabulary_size(), 8);
  EXPECT_THAT(tokenizer.encode("<extra_id_0>red<extra_id_1>", 4).ids, ElementsAre(7, 4, 6, 1));
}

TEST_F(TokenizerTest, DoesNotRepeatEosOfThePrompt) {
  const Tokenizer tokenizer = Tokenizer::load(folder_);
  EXPECT_THAT(tokenizer.encode("red</s>", 4).ids, ElementsAre(4, 1, 0, 0));
  EXPECT_EQ(tokenizer.encode("red</s>", 4).token_count, 2);
  EXPECT_THAT(tokenizer.encode("red</s> red", 4).ids, ElementsAre(4, 1, 4, 1));
}

TEST_F(TokenizerTest, RefusesInvalidArguments) {
  const Tokenizer tokenizer = Tokenizer::load(folder_);
  EXPECT_THROW(tokenizer.encode("red", 0), Error);
  EXPECT_THROW(tokenizer.encode("\xFF", 4), Error);
}

TEST_F(TokenizerTest, NamesAMissingModel) {
  fs::remove(folder_ / "spiece.model");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("spiece.model"), HasSubstr("no such file")));
  fs::create_directory(folder_ / "spiece.model");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("spiece.model"), HasSubstr("is a folder")));
  fs::remove(folder_ / "spiece.model");
  write("tokenizer.json", "{}");
  EXPECT_THAT(load_error(), HasSubstr("tokenizer.json: model is missing"));
}

TEST_F(TokenizerTest, ReportsErrorsOfSentencePiece) {
  const SpieceBytes pieces = SpieceBytes().piece("<pad>", 0, 3).piece("</s>", 0, 3).piece("a", -1);
  write("spiece.model", pieces.bytes());
  EXPECT_THAT(load_error(), AllOf(HasSubstr("spiece.model"), HasSubstr("unk is not defined")));
  write("spiece.model", SpieceBytes(pieces).piece("<unk>", 0, 2).piece("a", -2).bytes());
  EXPECT_THAT(load_error(), AllOf(HasSubstr("spiece.model"), HasSubstr("a is already defined")));
  write("spiece.model", SpieceBytes(pieces).piece("<unk>", 0, 2).piece("<0x41>", -2, 6).bytes());
  EXPECT_THAT(load_error(), AllOf(HasSubstr("spiece.model"), HasSubstr("byte piece <0x41>")));
}

TEST_F(TokenizerTest, UsesTheUnknownIdOfTheModel) {
  EXPECT_THAT(Tokenizer::load(folder_).encode("red \u65e5\u672c", 5).ids, ElementsAre(4, 3, 2, 1, 0));
  write("spiece.model", SpieceBytes()
                            .piece("<pad>", 0, 3)
                            .piece("</s>", 0, 3)
                            .piece("<s>", 0, 3)
                            .piece("<unk>", 0, 2)
                            .piece("\u2581", -2)
                            .piece("\u2581red", -3)
                            .bytes());
  EXPECT_THAT(Tokenizer::load(folder_).encode("red \u65e5\u672c", 5).ids, ElementsAre(5, 4, 3, 1, 0)) << "UMT5's";
}

TEST_F(TokenizerTest, MergesSuccessiveUnknownCharacters) {
  const Tokenizer tokenizer = Tokenizer::load(folder_);
  EXPECT_EQ(tokenizer.vocabulary_size(), 106);  // 6 pieces and T5's 100 sentinel tokens
  EXPECT_THAT(tokenizer.encode("\u00fc\u00dfx red\u0301x\u0301ed <0x41>", 12).ids,
              ElementsAre(3, 2, 4, 2, 5, 3, 2, 1, 0, 0, 0, 0));
}

TEST_F(TokenizerTest, FindsTheUnknownPieceByItsType) {
  write("spiece.model", SpieceBytes()
                            .piece("<unk>", -9)
                            .piece("<pad>", 0, 3)
                            .piece("</s>", 0, 3)
                            .piece("<none>", 0, 2)
                            .piece("\u2581red", -3)
                            .bytes());
  EXPECT_THAT(Tokenizer::load(folder_).encode("red\u0301", 4).ids, ElementsAre(4, 3, 2, 1));
}

TEST_F(TokenizerTest, EncodesUnknownBytesInLinearTime) {
  const Tokenizer tokenizer = Tokenizer::load(folder_);
  const auto seconds = [&](int count) {
    std::string accents = "red";
    for (int i = 0; i < count; ++i) accents += "\u0301";
    const std::clock_t start = std::clock();  // CPU time of this process, so a busy machine does not matter
    EXPECT_THAT(tokenizer.encode(accents, 4).ids, ElementsAre(4, 2, 1, 0));
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  // A text of 4 times the length would take 16 times as long if time were quadratic.
  EXPECT_LT(seconds(800'000), 8 * seconds(200'000));
}

TEST_F(TokenizerTest, SpellsUnknownCharactersWithByteFallback) {
  SpieceBytes pieces = SpieceBytes().piece("<pad>", 0, 3).piece("</s>", 0, 3).piece("<unk>", 0, 2).byte_fallback();
  for (const char high : std::string("0123456789ABCDEF"))
    for (const char low : std::string("0123456789ABCDEF")) pieces.piece(std::string("<0x") + high + low + ">", 0, 6);
  write("spiece.model", pieces.piece("\u2581", -2).bytes());
  EXPECT_THAT(Tokenizer::load(folder_).encode("\u00e9", 4).ids, ElementsAre(259, 3 + 0xC3, 3 + 0xA9, 1));
}

TEST_F(TokenizerTest, NormalizesAsTheModelSpecifies) {
  const SpieceBytes pieces =
      SpieceBytes().piece("<pad>", 0, 3).piece("</s>", 0, 3).piece("<unk>", 0, 2).piece("\u2581", -2).piece("b", -3);
  write("spiece.model", SpieceBytes(pieces).replace_a(std::string("bb\0", 3)).bytes());
  EXPECT_THAT(Tokenizer::load(folder_).encode("a  a", 7).ids, ElementsAre(3, 4, 4, 3, 4, 4, 1));
  write("spiece.model", SpieceBytes(pieces).normalizer_flag(3, false).normalizer_flag(4, false).bytes());
  EXPECT_THAT(Tokenizer::load(folder_).encode("b  b", 5).ids, ElementsAre(4, 3, 3, 4, 1)) << "no prefix, each space";
}

TEST_F(TokenizerTest, EncodesUserDefinedPiecesAsOneToken) {
  SpieceBytes pieces = SpieceBytes().piece("<pad>", 0, 3).piece("</s>", 0, 3).piece("<unk>", 0, 2).piece("\u2581", -2);
  for (size_t i = 1; i <= 80; ++i) pieces.piece(std::string(i, 'x'), -9, 4);
  write("spiece.model", pieces.bytes());
  write("tokenizer_config.json", R"({"extra_ids": 0, "additional_special_tokens": []})");
  EXPECT_THAT(Tokenizer::load(folder_).encode(std::string(81, 'x'), 3).ids, ElementsAre(83, 4, 1));
}

/// SentencePiece and libc10 both define a variable of this name, and the process uses only one of them. It must be
/// SentencePiece's, which is larger. With libc10's, SentencePiece would overwrite the variables behind it.
TEST(SentencePieceLibrary, IsLoadedBeforeLibtorch) {
  Dl_info place = {};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "FLAGS_minloglevel"), &place), 0);
  EXPECT_THAT(place.dli_fname, HasSubstr("libsentencepiece"));
}

TEST_F(TokenizerTest, RequiresIdsForEosAndPadding) {
  write("tokenizer_config.json", R"({"eos_token": ""})");
  EXPECT_THAT(load_error(), HasSubstr("eos_token"));
}

TEST_F(TokenizerTest, NamesInvalidJsonFields) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"extra_ids": "many"})", "extra_ids"},
      {R"({"extra_ids": -1})", "extra_ids"},
      {R"({"eos_token": 5})", "eos_token"},
      {R"({"eos_token": {"content": 5}})", "eos_token"},
      {R"({"additional_special_tokens": "x"})", "additional_special_tokens"},
      {R"({"additional_special_tokens": [1]})", "additional_special_tokens"},
      {R"({"added_tokens_decoder": []})", "added_tokens_decoder"},
      {R"({"added_tokens_decoder": {"x": "<a>"}})", "added_tokens_decoder.x"},
      {R"({"added_tokens_decoder": {"9": {"content": "<a>", "lstrip": 1}}})", "added_tokens_decoder.9.lstrip"},
      {R"({"added_tokens_decoder": {"9": {"content": "<a>", "single_word": true}}})", "single_word"},
      {R"({"padding_side": "left"})", "padding_side"},
      {R"({"truncation_side": "left"})", "truncation_side"},
      {R"({"split_special_tokens": true})", "split_special_tokens"},
      {R"([])", "tokenizer_config.json"},
      {R"({"a":)", "tokenizer_config.json"},
  };
  for (const auto& [content, field] : cases) {
    write("tokenizer_config.json", content);
    EXPECT_THAT(load_error(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr(field))) << content;
  }
  fs::remove(folder_ / "tokenizer_config.json");
  write("added_tokens.json", R"({"<a>": "x"})");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("added_tokens.json"), HasSubstr("<a>")));
}

}  // namespace
}  // namespace sparsereel::models
