// Tests the estimate of the memory that the vision model of Qwen3-VL needs for a picture. The outputs of the model are
// tested in tests/parity.
#include "models/text/encoder/qwen3_vision.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/support/decoder_checks.h"
#include "tests/support/qwen3_component.h"

namespace sparsereel::models {
namespace {

TEST(Qwen3Vision, EstimatesTheMemoryOfLooking) {
  const c10::InferenceMode inference;
  Component component = test::qwen3_in("qwen3_vision");
  component.files.clear();
  component.tensors.clear();
  component.random_seed = 0;
  component.config["vision_config"].update(
      {{"hidden_size", 288}, {"num_heads", 4}, {"depth", 2}, {"patch_size", 16}, {"deepstack_visual_indexes", {0}}});
  for (const int64_t inner : {288, 1076})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      component.config["vision_config"]["intermediate_size"] = inner;
      const Qwen3Vision vision = Qwen3Vision::load(component, {}, at::kCPU, dtype);
      const Picture picture = {.height = 512, .width = 768, .pixels = std::vector<uint8_t>(3 * 512 * 768)};
      const PicturePatches patches = picture_patches(picture, {});
      SCOPED_TRACE(inner);
      test::expect_peak_memory([&] { vision.forward(patches); }, vision.look_bytes(512, 768), patches.pixels.sizes());
    }
}

}  // namespace
}  // namespace sparsereel::models
