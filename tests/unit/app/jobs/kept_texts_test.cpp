#include "app/jobs/kept_texts.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

namespace sparsereel::app {
namespace {

KeptTexts::Text text_of_bytes(const std::string& key, int64_t bytes) {
  KeptTexts::Text text{.key = key, .conditioning = {}, .warnings = {key}};
  text.conditioning.text = at::zeros({1, bytes, 1}, at::kByte);
  return text;
}

TEST(KeptTexts, ForgetsTheTextsThatWereNotUsedForLongest) {
  KeptTexts texts(100);
  texts.keep(text_of_bytes("a", 40));
  texts.keep(text_of_bytes("b", 40));
  ASSERT_NE(texts.find("a"), nullptr);
  EXPECT_EQ(texts.find("a")->warnings.front(), "a");
  texts.keep(text_of_bytes("c", 40));
  EXPECT_TRUE(texts.has("a"));
  EXPECT_FALSE(texts.has("b"));
  EXPECT_TRUE(texts.has("c"));
  texts.keep(text_of_bytes("large", 200));
  EXPECT_FALSE(texts.has("large"));
  EXPECT_TRUE(texts.has("a"));
  texts.clear();
  EXPECT_EQ(texts.find("a"), nullptr);
}

}  // namespace
}  // namespace sparsereel::app
