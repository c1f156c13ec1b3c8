// Compares Qwen3-VL's vision model, and texts with pictures, with transformers. The data come from
// make_qwen3_vision.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/text/encoder/picture_positions.h"
#include "models/text/encoder/qwen3_encoder.h"
#include "models/text/encoder/qwen3_vision.h"
#include "tests/support/golden.h"
#include "tests/support/qwen3_component.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::close_to;

constexpr int64_t kUsedLayers = 4;

class Qwen3VisionParity : public ::testing::Test {
 protected:
  static const Component& component() {
    static const Component opened = test::qwen3_in("qwen3_vision");
    return opened;
  }
  static PatchConfig patches() {
    const std::string file = SPARSEREEL_TEST_DATA "/qwen3_vision/preprocessor_config.json";
    return parse_patch_config(read_json(file), file);
  }
  static Qwen3Vision vision(at::ScalarType dtype = at::kFloat) {
    return Qwen3Vision::load(component(), patches(), at::kCPU, dtype);
  }
  Picture picture(const std::string& name) const {
    const at::Tensor bytes = golden_[name + ".picture"];
    const auto* data = bytes.const_data_ptr<uint8_t>();
    return {.height = bytes.size(0), .width = bytes.size(1), .pixels = {data, data + bytes.numel()}};
  }
  /// Returns what the vision model sees of the text's two pictures, at their places in the text.
  std::vector<TextPicture> pictures_of_the_text(const Qwen3Vision& model) const {
    std::vector<TextPicture> pictures = {model.look(picture("kept")), model.look(picture("shrunk"))};
    const at::Tensor places = golden_["ids"][0].eq(model.marks().picture).nonzero().flatten();
    pictures[0].first = places[0].item<int64_t>();
    pictures[1].first = places[pictures[0].tokens.size(0)].item<int64_t>();
    return pictures;
  }

  c10::InferenceMode inference_;
  test::Golden golden_{"qwen3_vision_golden"};
};

TEST_F(Qwen3VisionParity, CutsPicturesOfEverySizeIntoTheSamePatches) {
  for (const char* name : {"kept", "rounded", "enlarged", "shrunk"}) {
    SCOPED_TRACE(name);
    const PicturePatches made = picture_patches(picture(name), patches());
    const at::Tensor grid = golden_[std::string(name) + ".grid"];
    EXPECT_EQ(made.rows, grid[1].item<int64_t>());
    EXPECT_EQ(made.columns, grid[2].item<int64_t>());
    EXPECT_TRUE(close_to(made.pixels, golden_[std::string(name) + ".pixels"], 1e-6));
    EXPECT_EQ(made.tokens(patches()), made.rows * made.columns / 4);
  }
}

TEST_F(Qwen3VisionParity, MatchesTheTokensOfPictures) {
  const Qwen3Vision model = vision();
  for (const std::string name : {"kept", "shrunk"}) {
    SCOPED_TRACE(name);
    const TextPicture seen = model.look(picture(name));
    EXPECT_TRUE(close_to(seen.tokens, golden_[name + ".tokens"], 1e-5));
    ASSERT_EQ(seen.of_layers.size(), 3U);
    for (size_t i = 0; i < seen.of_layers.size(); ++i)
      EXPECT_TRUE(close_to(seen.of_layers[i], golden_[name + ".layer" + std::to_string(i)], 1e-5));
    EXPECT_EQ(seen.rows * seen.columns, seen.tokens.size(0));
  }
}

TEST_F(Qwen3VisionParity, ErrsLittleInBf16) {
  const TextPicture seen = vision(at::kBFloat16).look(picture("shrunk"));
  EXPECT_EQ(seen.tokens.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(close_to(seen.tokens, golden_["shrunk.tokens"], 3e-2));
}

TEST_F(Qwen3VisionParity, MatchesThePositionsOfTextAndPictures) {
  const std::vector<TextPicture> pictures = pictures_of_the_text(vision());
  EXPECT_TRUE(picture_positions(golden_["ids"].size(1), pictures).equal(golden_["positions"]));
}

TEST_F(Qwen3VisionParity, MatchesTheStatesOfATextWithPictures) {
  for (const Residence residence : {Residence::device, Residence::file}) {
    const Qwen3Encoder encoder = Qwen3Encoder::load(component(), at::kCPU, at::kFloat, residence, kUsedLayers);
    std::vector<TextPicture> pictures = pictures_of_the_text(vision());
    EXPECT_TRUE(close_to(encoder.forward_with(golden_["ids"], pictures), golden_["hidden"], 1e-5));
    for (TextPicture& each : pictures) each.of_layers.clear();
    EXPECT_FALSE(close_to(encoder.forward_with(golden_["ids"], pictures), golden_["hidden"], 1e-2));
    EXPECT_FALSE(close_to(encoder.forward(golden_["ids"]), golden_["hidden"], 1e-2));
  }
}

TEST_F(Qwen3VisionParity, GivesTheSameFromAFileOfComfy) {
  const test::TemporaryFolder folder;
  const Component comfy = test::small_qwen3_renamed(component(), folder / "comfy.safetensors");
  ASSERT_NE(comfy.names, nullptr);
  const TextPicture seen = Qwen3Vision::load(comfy, patches(), at::kCPU, at::kFloat).look(picture("kept"));
  EXPECT_TRUE(seen.tokens.equal(vision().look(picture("kept")).tokens));
  const Qwen3Encoder encoder = Qwen3Encoder::load(comfy, at::kCPU, at::kFloat, Residence::device, kUsedLayers);
  EXPECT_TRUE(close_to(encoder.forward_with(golden_["ids"], pictures_of_the_text(vision())), golden_["hidden"], 1e-5));
}

}  // namespace
}  // namespace sparsereel::models
