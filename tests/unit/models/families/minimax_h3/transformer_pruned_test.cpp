// MiniMax-H3's pruned files store modulation layers only for timestep embeddings in the span of a small basis. Tests
// that predictions equal those of the whole model at timesteps whose embeddings are in this span.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/layers/timestep_embedding.h"
#include "models/request/attention_run.h"
#include "tests/support/minimax_h3_files.h"

namespace sparsereel::models {
namespace {

using test::close_to;
using test::NamedTensors;

constexpr int64_t kRank = 4, kRows = 11;

bool is_modulation(const std::string& name) {
  return name.ends_with("adaln_proj.linear.weight") || name == "norm_out.linear.weight";
}

class MiniMaxH3Pruned : public ::testing::Test {
 protected:
  /// Returns silu(timestep embedding) of these times, [times, time_embed_dim].
  at::Tensor embedded(const std::vector<float>& times) const {
    const auto layer = [&](const std::string& name) {
      return Linear{.weight = weights_.at(name + ".weight"), .bias = weights_.at(name + ".bias")};
    };
    const at::Tensor sinusoids =
        timestep_sinusoids(at::tensor(times), case_.content["config"]["freq_dim"].get<int64_t>(), true, 0);
    return at::silu(embed_timesteps(sinusoids, {layer("time_embedder.linear_1"), layer("time_embedder.linear_2")}));
  }
  std::vector<float> times() const {
    const auto video = case_.content["times"][0].get<float>(), sound = case_.content["times"][1].get<float>();
    return {video, sound, std::max(video, 0.999F)};
  }
  /// Returns a basis [time_embed_dim, kRank] of orthonormal columns that span embedded(times()).
  at::Tensor basis() const {
    const at::Tensor all = at::cat({embedded(times()), at::randn({1, embedded(times()).size(1)})});
    return std::get<0>(at::linalg_qr(all.t(), "reduced")).contiguous();
  }
  NamedTensors pruned(const at::Tensor& basis, bool drops_embedding) const {
    NamedTensors stored;
    for (const auto& [name, tensor] : weights_) {
      if (drops_embedding && name.starts_with("time_embedder.")) continue;
      stored[name] = is_modulation(name) ? at::matmul(tensor, basis) : tensor;
    }
    return stored;
  }
  /// Returns a table [kRows, kRank] over timesteps. Interpolating it at times()[i] gives coordinates[i], where
  /// `coordinates` is [times, kRank].
  at::Tensor table_of(const at::Tensor& coordinates) const {
    at::Tensor table = at::randn({kRows, kRank});
    for (size_t i = 0; i < times().size(); ++i) {
      const double place = std::min(static_cast<double>(times()[i]), 1.0) * (kRows - 1);
      const auto low = std::min(static_cast<int64_t>(place), kRows - 2);
      const double share = place - static_cast<double>(low);
      const at::Tensor wanted = coordinates[static_cast<int64_t>(i)];
      if (share == 0)
        table[low].copy_(wanted);
      else
        table[low + 1].copy_((wanted - table[low] * (1 - share)) / share);
    }
    return table;
  }
  void expect_same(const NamedTensors& stored) const {
    const Prediction expected =
        predict(test::open_minimax_h3(test::write_tensors(folder_ / "whole.safetensors", weights_), case_), case_);
    const Prediction actual =
        predict(test::open_minimax_h3(test::write_tensors(folder_ / "pruned.safetensors", stored), case_), case_);
    EXPECT_TRUE(close_to(actual.video, expected.video, 1e-4));
    EXPECT_TRUE(close_to(actual.sound, expected.sound, 1e-4));
  }

  c10::InferenceMode inference_;
  const test::TemporaryFolder folder_;
  const test::ParityCase case_ = test::minimax_h3_case("last");
  const NamedTensors weights_ = test::minimax_h3_weights(case_);
};

TEST_F(MiniMaxH3Pruned, ReadsATableOfTimesteps) {
  const at::Tensor columns = basis();
  NamedTensors stored = pruned(columns, /*drops_embedding=*/true);
  stored["adaln_t_table"] = table_of(at::matmul(embedded(times()), columns));
  expect_same(stored);
  const auto dim = case_.content["config"]["attention_head_dim"].get<int64_t>();
  NamedTensors comfy = test::in_authors_names(stored, FusedRows::by_kind, dim);
  EXPECT_TRUE(comfy.contains("adaln_t_table"));
  EXPECT_TRUE(comfy.contains("final_layer.adaln_proj.linear.weight"));
  expect_same(comfy);
}

TEST_F(MiniMaxH3Pruned, ReadsASharedBasis) {
  const at::Tensor columns = basis();
  NamedTensors stored = pruned(columns, /*drops_embedding=*/false);
  stored["adaln_basis.weight"] = columns.t().contiguous();
  expect_same(stored);
}

TEST_F(MiniMaxH3Pruned, RefusesATableOfOneRow) {
  NamedTensors stored = pruned(basis(), /*drops_embedding=*/true);
  stored["adaln_t_table"] = at::zeros({1, kRank});
  const Component component = test::open_minimax_h3(test::write_tensors(folder_ / "pruned.safetensors", stored), case_);
  EXPECT_TRUE(test::throws_error([&] { load_minimax_h3_transformer(component, at::kCPU, at::kFloat); },
                                 {"pruned.safetensors", "adaln_t_table"}));
}

}  // namespace
}  // namespace sparsereel::models
