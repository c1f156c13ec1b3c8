// Tests how the text of --lora is read as a list of files, strengths and transformers.
#include "models/request/lora_choice.h"

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::throws_error;

class LoraChoices : public ::testing::Test {
 protected:
  void make(const std::vector<std::string>& names) const {
    for (const std::string& name : names) test::write_text(folder_ / name, "");
  }
  std::string in_folder(const std::string& name) const { return (folder_ / name).string(); }
  LoraChoice only(const std::string& text) const {
    const std::vector<LoraChoice> loras = parse_loras(in_folder(text));
    EXPECT_EQ(loras.size(), 1U) << text;
    return loras.at(0);
  }

  test::TemporaryFolder folder_;
};

TEST_F(LoraChoices, MayNameExistingFilesWithSpecialCharacters) {
  const std::vector<std::string> names = {
      "ink, wash.safetensors", "style:v2.safetensors", "a:0.5", "b@high", "c@high:2", "one,two,three", "d@e.f"};
  make(names);
  for (const std::string& name : names) {
    EXPECT_EQ(only(name).file, in_folder(name));
    EXPECT_EQ(only(name).expert, "") << name;
    EXPECT_EQ(only(name).scale, 1) << name;
    EXPECT_EQ(only(name + ":-0.25").file, in_folder(name));
    EXPECT_EQ(only(name + ":-0.25").scale, -0.25) << name;
    EXPECT_EQ(only(name + "@low").file, in_folder(name));
    EXPECT_EQ(only(name + "@low").expert, "low") << name;
    EXPECT_EQ(only(name + "@low:3").file, in_folder(name));
    EXPECT_EQ(only(name + "@low:3").expert, "low") << name;
    EXPECT_EQ(only(name + "@low:3").scale, 3) << name;
  }
}

TEST_F(LoraChoices, AreSplitBetweenExistingFiles) {
  make({"ink, wash.safetensors", "plain.safetensors", "style:v2.safetensors"});
  const std::string text = in_folder("plain.safetensors") + "," + in_folder("ink, wash.safetensors") + ":0.5, " +
                           in_folder("style:v2.safetensors") + "@high," + in_folder("none.safetensors") + ":2";
  const std::vector<LoraChoice> loras = parse_loras(text);
  ASSERT_EQ(loras.size(), 4U);
  EXPECT_EQ(loras[0].file, in_folder("plain.safetensors"));
  EXPECT_EQ(loras[1].file, in_folder("ink, wash.safetensors"));
  EXPECT_EQ(loras[1].scale, 0.5);
  EXPECT_EQ(loras[2].file, in_folder("style:v2.safetensors"));
  EXPECT_EQ(loras[2].expert, "high");
  EXPECT_EQ(loras[3].file, in_folder("none.safetensors"));
  EXPECT_EQ(loras[3].scale, 2);
  EXPECT_EQ(parse_loras(text_of(loras, true)).size(), 4U);
}

TEST_F(LoraChoices, ReadScaleAndExpertOfAMissingFile) {
  EXPECT_EQ(only("a.safetensors@high:0.5").file, in_folder("a.safetensors"));
  EXPECT_EQ(only("a.safetensors@high:0.5").expert, "high");
  EXPECT_EQ(parse_loras(in_folder("ink") + ", wash").size(), 2U);
  EXPECT_TRUE(throws_error([&] { parse_loras(in_folder("style:v2.safetensors")); },
                           {"style:v2.safetensors", "no such file", "not a finite 32-bit number"}));
}

TEST_F(LoraChoices, ParseALongListQuickly) {
  std::string text = "a";
  for (int i = 1; i < 3000; ++i) text += ",a";
  EXPECT_EQ(parse_loras(text).size(), 3000U);
}

}  // namespace
}  // namespace sparsereel::models
