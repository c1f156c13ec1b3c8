// Tests how file names tell which of two transformers (experts) is for high noise and which for low noise.
#include "models/store/configs/expert_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/store/checkpoint/expert_partner.h"

namespace sparsereel::models {
namespace {

FoundPart part(const std::string& file, const std::string& format = "fp16") {
  FoundPart part;
  part.file = file;
  part.format.name = format;
  return part;
}

std::vector<std::pair<std::string, std::string>> paired(std::vector<FoundPart> high, std::vector<FoundPart> low) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [first, second] : pair_experts(std::move(high), std::move(low)).pairs)
    names.emplace_back(first.file.string(), second.file.string());
  return names;
}

TEST(ExpertPairs, HaveEqualNamesWithoutTheExpert) {
  const std::pair<const char*, const char*> published[] = {
      {"wan2.2_t2v_high_noise_14B_fp8_scaled.safetensors", "wan2.2_t2v_low_noise_14B_fp8_scaled.safetensors"},
      {"Wan2_2-T2V-A14B_HIGH_fp8_e4m3fn_scaled_KJ.safetensors", "Wan2_2-T2V-A14B-LOW_fp8_e4m3fn_scaled_KJ.safetensors"},
      {"Wan2.2-T2V-A14B-HighNoise-Q4_K_M.gguf", "Wan2.2-T2V-A14B-LowNoise-Q4_K_M.gguf"},
      {"high_noise_model.safetensors", "low_noise_model.safetensors"}};
  for (const auto& [high, low] : published) EXPECT_EQ(name_without_expert(high), name_without_expert(low));
  EXPECT_NE(name_without_expert("a-HighNoise-Q4_K_M.gguf"), name_without_expert("a-LowNoise-Q4_K_S.gguf"));
}

TEST(ExpertPairs, PreferEqualNamesOverEqualFormats) {
  using Names = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(paired({part("a-high-1.gguf"), part("a-high-2.gguf")}, {part("a-low-2.gguf"), part("a-low-1.gguf")}),
            (Names{{"a-high-1.gguf", "a-low-1.gguf"}, {"a-high-2.gguf", "a-low-2.gguf"}}));
  EXPECT_EQ(paired({part("a_high", "Q8_0"), part("b_high", "fp16")}, {part("c_low", "fp16"), part("d_low", "Q8_0")}),
            (Names{{"a_high", "d_low"}, {"b_high", "c_low"}}));
  EXPECT_EQ(paired({part("a_high", "Q8_0")}, {part("c_low", "fp16")}), (Names{{"a_high", "c_low"}}));
  EXPECT_EQ(pair_experts({part("a_high", "Q8_0"), part("b_high", "Q8_0")}, {part("c_low", "fp16")}).alone.size(), 3U);
}

TEST(ExpertPairs, PreferTheSameFolderForEqualNames) {
  EXPECT_EQ(paired({part("x/a_high"), part("y/a_high")}, {part("x/a_low"), part("y/a_low")}),
            (std::vector<std::pair<std::string, std::string>>{{"x/a_high", "x/a_low"}, {"y/a_high", "y/a_low"}}));
  EXPECT_EQ(partners_of(part("x/a_high"), {part("y/a_low"), part("x/a_low")}).front().file, "x/a_low");
}

}  // namespace
}  // namespace sparsereel::models
