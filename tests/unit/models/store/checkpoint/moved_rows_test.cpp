// A stored tensor may join several layers. Tests where the rows of one layer are found in it, and that tensors which
// cannot be split are refused.
#include "models/store/checkpoint/moved_rows.h"

#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

TensorEntry entry(Dtype dtype, std::vector<int64_t> shape) {
  const size_t bytes = *byte_count(shape, dtype);
  return {.name = "a", .dtype = dtype, .shape = std::move(shape), .offset = 100, .bytes = bytes};
}

MovedRows third(int64_t part) {
  return {.part = part, .parts = 3};
}

TEST(MovedRows, AreFoundInsideTheFusedTensor) {
  const auto last = part_of(entry(Dtype::f16, {12, 5}), third(2));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->shape, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(last->bytes, 40U);
  EXPECT_EQ(last->offset, 180U);
  EXPECT_EQ(last->elements(), 20U);
  EXPECT_FALSE(last->halves_swapped);
  EXPECT_EQ(part_of(entry(Dtype::f32, {6}), third(1))->offset, 108U) << "of a bias too";
}

TEST(MovedRows, AreWholeBlocksIfPacked) {
  const auto second = part_of(entry(Dtype::q8_0, {6, 64}), third(1));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->offset, 100 + 2 * 2 * 34U);
  EXPECT_EQ(second->bytes, 2 * 2 * 34U);
  EXPECT_FALSE(part_of(entry(Dtype::q8_0, {6, 16}), third(1))) << "a block holds two rows";
}

TEST(MovedRows, RequireADivisibleShape) {
  EXPECT_FALSE(part_of(entry(Dtype::f16, {11, 5}), third(0)));
  EXPECT_FALSE(part_of(entry(Dtype::f16, {0, 5}), third(0)));
  EXPECT_FALSE(part_of(entry(Dtype::f16, {}), third(0)));
  EXPECT_FALSE(part_of(entry(Dtype::f16, {5, 2}), {.halves_swapped = true}));
}

TEST(MovedRows, KeepSwappedHalvesInPlace) {
  const auto swapped = part_of(entry(Dtype::f16, {4, 2}), {.halves_swapped = true});
  ASSERT_TRUE(swapped);
  EXPECT_TRUE(swapped->halves_swapped);
  EXPECT_EQ(swapped->offset, 100U);
  EXPECT_EQ(swapped->bytes, 16U);
}

TEST(MovedRows, TakeTurnsInGroups) {
  const MovedRows turns = {.part = 1, .parts = 3, .turns_like = "q_norm.weight"};
  const auto second = part_of(entry(Dtype::f16, {12, 5}), turns, 2);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->shape, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(second->offset, 100 + 2 * 10U);
  EXPECT_EQ(second->group_rows, 2);
  EXPECT_EQ(second->group_step, 6);
  EXPECT_EQ(second->bytes, 8 * 10U) << "from row 2 to the end of row 9";
  EXPECT_FALSE(part_of(entry(Dtype::f16, {12, 5}), turns, 0)) << "groups without a size";
  EXPECT_FALSE(part_of(entry(Dtype::f16, {12, 5}), turns, 5));
}

}  // namespace
}  // namespace sparsereel::models
