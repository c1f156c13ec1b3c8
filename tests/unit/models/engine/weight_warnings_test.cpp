// Tests the warnings about weights for which the options for 8-bit weights have no effect.
#include "models/engine/weight_warnings.h"

#include <gtest/gtest.h>

#include "models/store/checkpoint/family.h"

namespace sparsereel::models {
namespace {

const std::string kFolder = std::string(SPARSEREEL_TEST_DATA) + "/quantized/";

TEST(WeightWarnings, CountWeightsThatFp8DoesNotChange) {
  const Part part = {.role = "transformer", .classes = {"Model"}};
  const Component component = component_of(open_weights(kFolder + "layers.safetensors"), part);
  const std::string warning = kept_warning(component, "weights", "fp8", "transformer");
  EXPECT_TRUE(warning.starts_with("weights fp8 has no effect for 4 weights in asym_w4a8_int8 and ")) << warning;
  for (const char* words : {"1 weight in convrot_w4a4", "2 weights in int8", "7 weights in int8_convrot",
                            "4 weights in nvfp4", " of transformer: "})
    EXPECT_NE(warning.find(words), std::string::npos) << warning;
  EXPECT_EQ(warning.find("mxfp8"), std::string::npos) << "is rounded again";
  EXPECT_EQ(kept_warning(component, "weights", "int8", "transformer"), "");
  const Component plain = component_of(open_weights(kFolder + "golden.safetensors"), part);
  EXPECT_EQ(kept_warning(plain, "weights", "fp8", "transformer"), "");
}

}  // namespace
}  // namespace sparsereel::models
