// Tests the config of patches, and the sizes of pictures that are cut into patches.
#include "models/request/patch_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
using test::throws_error;

TEST(PatchConfig, HasTheValuesOfThePublishedModel) {
  const PatchConfig config = parse_patch_config({{"size", {{"longest_edge", 16777216}, {"shortest_edge", 65536}}},
                                                 {"patch_size", 16},
                                                 {"image_mean", {0.5, 0.5, 0.5}}},
                                                "a.json");
  EXPECT_EQ(config.merge_size, 2);
  EXPECT_EQ(config.least_pixels, 65536);
  EXPECT_EQ(config.most_pixels, 16777216);
  EXPECT_EQ(parse_patch_config(json::object(), "a.json").patch_size, config.patch_size);
}

TEST(PatchConfig, TakesTheNamesOfOlderFiles) {
  const PatchConfig config = parse_patch_config(
      {{"min_pixels", 3136}, {"max_pixels", nullptr}, {"size", {{"longest_edge", 99999}}}}, "a.json");
  EXPECT_EQ(config.least_pixels, 3136);
  EXPECT_EQ(config.most_pixels, 99999);
}

TEST(PatchConfig, IsThatOfEveryImageProcessorOfQwen) {
  for (const char* type : {"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen3VLImageProcessor"})
    EXPECT_EQ(parse_patch_config({{"image_processor_type", type}, {"min_pixels", 3136}}, "a.json").least_pixels, 3136);
  EXPECT_TRUE(throws_error(
      [] {
        parse_patch_config({{"image_processor_type", "SiglipImageProcessor"}}, "a.json");
      },
      {"a.json", "image_processor_type \"SiglipImageProcessor\""}));
}

TEST(PatchConfig, RefusesWhatIsNotDone) {
  for (const json& wrong : {json{{"do_resize", false}}, json{{"resample", 2}}, json{{"patch_size", 0}},
                            json{{"image_mean", {1}}}, json{{"size", {{"shortest_edge", 10}, {"longest_edge", 5}}}},
                            json{{"image_std", {0, 1, 1}}}, json{{"size", 224}}, json{{"image_processor_type", 2}},
                            json{{"max_pixels", 100}}, json{{"min_pixels", int64_t{1} << 31}}})
    EXPECT_TRUE(throws_error([&] { parse_patch_config(wrong, "dir/p.json"); }, {"dir/p.json"})) << wrong;
}

/// The expected sizes are those of transformers' smart_resize().
TEST(PatchConfig, RoundsSizesToWholeSquares) {
  const PatchConfig config;
  for (const auto& [size, expected] : {std::pair<PatchSizes, PatchSizes>{{768, 1344}, {768, 1344}},
                                       {{480, 864}, {480, 864}},
                                       {{500, 500}, {512, 512}},
                                       // 23.5 and 24.5 squares both round to 24, which is even.
                                       {{752, 784}, {768, 768}},
                                       {{64, 96}, {224, 320}},
                                       {{5000, 9000}, {3040, 5472}}}) {
    const PatchSizes made = patched_size(size.height, size.width, config);
    EXPECT_EQ(made.height, expected.height) << size.height;
    EXPECT_EQ(made.width, expected.width) << size.width;
  }
  EXPECT_TRUE(throws_error([&] { patched_size(1, 201, config); }, {"201x1"}));
  EXPECT_TRUE(is_too_narrow(1, 201));
  EXPECT_FALSE(is_too_narrow(200, 1));
  EXPECT_EQ(picture_tokens(768, 1344, config), 1008);
  EXPECT_EQ(picture_tokens(64, 96, config), 70) << "a small picture grows";
}

}  // namespace
}  // namespace sparsereel::models
