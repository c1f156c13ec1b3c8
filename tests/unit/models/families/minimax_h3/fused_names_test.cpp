// Tests how the order of queries, keys and values in fused layers is found out, from the numbers or from the file.
#include "models/families/minimax_h3/fused_names.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/layers/int8.h"
#include "models/request/attention_run.h"
#include "tests/support/minimax_h3_files.h"

namespace sparsereel::models {
namespace {

class MiniMaxH3FusedRows : public ::testing::Test {
 protected:
  StoredWeights stored(FusedRows order, double queries_and_keys, at::ScalarType dtype = at::kFloat) const {
    test::NamedTensors tensors;
    for (const auto& [name, tensor] : in_order(order, queries_and_keys)) tensors[name] = tensor.to(dtype);
    return open_weights(test::write_tensors(folder_ / "a.safetensors", tensors));
  }

  test::NamedTensors in_order(FusedRows order, double queries_and_keys) const {
    const auto dim = case_.content["config"]["attention_head_dim"].get<int64_t>();
    return test::in_authors_names(test::minimax_h3_weights(case_, queries_and_keys), order, dim);
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

/// In int8, each row is scaled so that its largest number is 127. Only the rows' scales tell how long the rows are.
TEST_F(MiniMaxH3FusedRows, AreToldByQuantizedNumbers) {
  for (const FusedRows order : {FusedRows::by_kind, FusedRows::by_head})
    for (const bool is_int8 : {true, false}) {
      SCOPED_TRACE(is_int8);
      test::NamedTensors tensors = in_order(order, 3);
      for (const auto& [name, tensor] : in_order(order, 3)) {
        if (!name.ends_with("qkv_proj.weight")) continue;
        const std::string layer = name.substr(0, name.size() - std::string("weight").size());
        if (is_int8) {
          const Int8Rows rows = quantize_int8(tensor, 0);
          tensors[name] = rows.values;
          tensors[layer + "weight_scale"] = rows.scale.unsqueeze(1);
        } else {
          const double scale = tensor.abs().max().item<double>() / 448;
          tensors[name] = (tensor / scale).to(at::kFloat8_e4m3fn);
          tensors[layer + "weight_scale"] = at::full({}, scale, at::kFloat);
        }
      }
      const StoredWeights weights = open_weights(test::write_tensors(folder_ / "a.safetensors", tensors));
      EXPECT_EQ(fused_rows_by_numbers(weights.tensors, weights), order);
    }
}

/// Codes and scales lie in several tensors.
TEST_F(MiniMaxH3FusedRows, AreToldByJoinedNumbers) {
  for (const FusedRows order : {FusedRows::by_kind, FusedRows::by_head})
    for (const char* format : {"mxfp8", "nvfp4", "convrot_w4a4", "awq_w4a16"}) {
      SCOPED_TRACE(format);
      const test::NamedTensors plain = test::in_authors_names(test::wide_projections(3), order, 128);
      const StoredWeights weights =
          open_weights(test::write_tensors(folder_ / "a.safetensors", test::quantized_projections(plain, format)));
      EXPECT_EQ(fused_rows_by_numbers(weights.tensors, weights), order);
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

TEST_F(MiniMaxH3FusedRows, AreDoubtedInAWarningThatNamesTheFile) {
  const StoredWeights weights = stored(FusedRows::by_kind, 1);
  const std::string warning = doubt_about_rows(weights.tensors, weights, FusedRows::by_kind);
  EXPECT_NE(warning.find("a.safetensors: "), std::string::npos) << warning;
  EXPECT_NE(warning.find("as ComfyUI stores them"), std::string::npos) << warning;
  EXPECT_EQ(doubt_about_rows({}, weights, FusedRows::by_kind), "") << "no fused layer";
}

TEST_F(MiniMaxH3FusedRows, AreToldByTheFileOtherwise) {
  StoredWeights weights = stored(FusedRows::by_kind, 1);
  EXPECT_EQ(fused_rows_by_form(weights.tensors, weights), FusedRows::by_kind) << "a single file";
  weights.origin = "transformer/model.safetensors.index.json";
  EXPECT_EQ(fused_rows_by_form(weights.tensors, weights), FusedRows::by_head) << "shards";
  TensorTable bare = weights.tensors, prefixed;
  for (const auto& [name, place] : bare) prefixed["model.diffusion_model." + name] = place;
  weights.tensors = prefixed;
  EXPECT_EQ(fused_rows_by_form(bare, weights), FusedRows::by_kind) << "shards with ComfyUI's prefix";
  weights.tensors = bare;
  bare["adaln_t_table"] = bare.begin()->second;
  EXPECT_EQ(fused_rows_by_form(bare, weights), FusedRows::by_kind) << "a pruned model";
}

}  // namespace
}  // namespace sparsereel::models
