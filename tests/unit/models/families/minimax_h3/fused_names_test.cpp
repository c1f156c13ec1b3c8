// Tests what numbers and files tell about the order of queries, keys and values.
#include "models/families/minimax_h3/fused_names.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/request/attention_run.h"
#include "tests/support/minimax_h3_files.h"

namespace sparsereel::models {
namespace {

class MiniMaxH3FusedRows : public ::testing::Test {
 protected:
  StoredWeights stored(FusedRows order, double queries_and_keys, at::ScalarType dtype = at::kFloat) const {
    test::NamedTensors tensors;
    const auto dim = case_.content["config"]["attention_head_dim"].get<int64_t>();
    for (const auto& [name, tensor] :
         test::in_authors_names(test::minimax_h3_weights(case_, queries_and_keys), order, dim))
      tensors[name] = tensor.to(dtype);
    return open_weights(test::write_tensors(folder_ / "a.safetensors", tensors));
  }

  c10::InferenceMode inference_;
  const test::TemporaryFolder folder_;
  const test::ParityCase case_ = test::minimax_h3_case();
};

TEST_F(MiniMaxH3FusedRows, AreToldByTheLengthsOfRows) {
  for (const FusedRows order : {FusedRows::by_kind, FusedRows::by_head})
    for (const double factor : {0.5, 0.8, 1.25, 3.0})
      for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const StoredWeights weights = stored(order, factor, dtype);
        EXPECT_EQ(fused_rows_by_numbers(weights.tensors, weights), order) << factor << " " << dtype;
      }
}

TEST_F(MiniMaxH3FusedRows, AreNotToldByEqualLengths) {
  for (const FusedRows order : {FusedRows::by_kind, FusedRows::by_head}) {
    const StoredWeights weights = stored(order, 1);
    EXPECT_FALSE(fused_rows_by_numbers(weights.tensors, weights));
  }
  StoredWeights none;
  EXPECT_FALSE(fused_rows_by_numbers(none.tensors, none));
}

TEST_F(MiniMaxH3FusedRows, AreToldByTheFileOtherwise) {
  StoredWeights weights = stored(FusedRows::by_kind, 1);
  EXPECT_EQ(fused_rows_of(weights.tensors, weights), FusedRows::by_kind) << "a single file";
  weights.origin = "transformer/model.safetensors.index.json";
  EXPECT_EQ(fused_rows_of(weights.tensors, weights), FusedRows::by_head) << "shards";
  TensorTable bare = weights.tensors, prefixed;
  for (const auto& [name, place] : bare) prefixed["model.diffusion_model." + name] = place;
  weights.tensors = prefixed;
  EXPECT_EQ(fused_rows_of(bare, weights), FusedRows::by_kind) << "shards with ComfyUI's prefix";
  weights.tensors = bare;
  bare["adaln_t_table"] = bare.begin()->second;
  EXPECT_EQ(fused_rows_of(bare, weights), FusedRows::by_kind) << "a pruned model";
}

}  // namespace
}  // namespace sparsereel::models
