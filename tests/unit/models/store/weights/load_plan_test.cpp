// Tests the plan by which a layer's weight is made from the tensors in the files.
#include "models/store/weights/load_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "models/layers/linear_layer.h"

namespace sparsereel::models {
namespace {

/// Uses a file with tensors [2, 256] in ggml's packed formats.
class LoadPlanTest : public ::testing::Test {
 protected:
  LoadPlanTest() {
    component_.files.push_back(
        std::make_shared<TensorFile>(std::filesystem::path(SPARSEREEL_TEST_DATA) / "gguf" / "blocks.gguf"));
    for (const TensorEntry& entry : component_.files[0]->entries()) component_.tensors[entry.name] = {0, &entry};
  }

  LoadPlan plan(std::vector<std::string> names, const WeightFormat& format) {
    const auto rows = static_cast<int64_t>(2 * names.size());
    const Parameter parameter = {.names = std::move(names),
                                 .stored = {2, 256},
                                 .shape = {rows, 256},
                                 .fp8 = true,
                                 .scale = &layer_.scale,
                                 .rows = &layer_.rows};
    return plan_load(*open_source(component_, at::kMeta, format.dtype), component_, parameter, format);
  }

  Component component_;
  Linear layer_;
};

TEST_F(LoadPlanTest, KeepsPackedRowsInTheOrderOfTheNames) {
  const LoadPlan found = plan({"Q6_K", "Q4_K"}, at::kBFloat16);
  EXPECT_EQ(found.form, LoadForm::packed);
  ASSERT_EQ(found.rows.size(), 2U);
  EXPECT_EQ(found.rows[0].dtype, Dtype::q6_k);
  EXPECT_EQ(found.rows[1].offset, 432);  // 2 x 210 bytes, aligned to 16
  EXPECT_EQ(found.bytes, 432U + 288U);
  EXPECT_FALSE(found.rounds_again);
}

TEST_F(LoadPlanTest, RequantizesPackedRowsForEightBitProducts) {
  const LoadPlan found = plan({"Q4_K"}, {at::kBFloat16, /*in_fp8=*/true});
  EXPECT_EQ(found.form, LoadForm::quantized);
  EXPECT_TRUE(found.rounds_again);
  EXPECT_EQ(found.bytes, 2U * 256 + 2 * 4);
}

TEST_F(LoadPlanTest, ExpandsRowsWithAWholeDifference) {
  component_.deltas["Q4_K"].push_back({.file = component_.files[0], .up = component_.tensors.at("Q6_K").second});
  const LoadPlan found = plan({"Q4_K"}, at::kHalf);
  EXPECT_EQ(found.form, LoadForm::numbers);
  EXPECT_EQ(found.dtype, at::kHalf);
  EXPECT_EQ(found.bytes, 2U * 2 * 256);
}

TEST_F(LoadPlanTest, NamesTheMissingPart) {
  const LoadPlan found = plan({"Q4_K", "absent"}, at::kBFloat16);
  EXPECT_FALSE(found.fits());
  EXPECT_TRUE(found.parts[0].fits());
  EXPECT_FALSE(found.parts[1].stored);
  EXPECT_EQ(found.parts[1].complaint, "[2, 256]");
}

}  // namespace
}  // namespace sparsereel::models
