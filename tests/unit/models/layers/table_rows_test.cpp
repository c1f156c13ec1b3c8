// Tests reading single rows of an embedding table: in bf16, in fp8 with scales, and packed in int8. They must equal the
// rows of the whole, converted table.
#include "models/layers/table_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "models/layers/fp8.h"
#include "models/layers/unpack.h"

namespace sparsereel::models {
namespace {

const std::vector<int64_t> kPlaces = {3, 0, 3, 9};

at::Tensor places() {
  return at::tensor(kPlaces, at::kLong);
}

TEST(TableRows, AreConvertedToTheDtypeOfTheRun) {
  const Linear table = {.weight = at::randn({10, 8}).to(at::kBFloat16)};
  const at::Tensor rows = table_rows(table, places(), at::kFloat);
  EXPECT_EQ(rows.scalar_type(), at::kFloat);
  EXPECT_TRUE(rows.equal(table.weight.index_select(0, places()).to(at::kFloat)));
}

TEST(TableRows, TakeTheirScales) {
  const Activation small = quantize_rows(at::randn({10, 16}));
  const Linear table = {.weight = small.values, .scale = small.scale.view({10})};
  const at::Tensor whole = small.values.to(at::kFloat) * small.scale;
  EXPECT_TRUE(table_rows(table, places(), at::kFloat).equal(whole.index_select(0, places())));
}

TEST(TableRows, AreUnpackedWithScalesFactorsAndLoras) {
  Linear table = {.weight = at::randint(0, 256, {10 * 32}, at::kByte), .scale = at::rand({10}) + 0.5};
  const LowRank delta = {.up = at::randn({10, 2}), .down = at::randn({2, 32}), .scale = 0.5};
  table.rows = {{.dtype = Dtype::i8,
                 .rows = 10,
                 .columns = 32,
                 .offset = 0,
                 .deltas = {delta},
                 .rotation = 16,
                 .column_scale = at::rand({32}) + 0.5}};
  const at::Tensor whole = unpack(table.weight, table.rows, table.scale, at::kFloat);
  EXPECT_TRUE(at::allclose(table_rows(table, places(), at::kFloat), whole.index_select(0, places())));
  EXPECT_EQ(table_rows(table, places(), at::kBFloat16).scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace sparsereel::models
