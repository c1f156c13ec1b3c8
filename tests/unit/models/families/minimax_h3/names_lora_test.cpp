// Tests that LoRAs with diffusers' names and LoRAs with the authors' names change MiniMax-H3's transformer in the same
// way, whatever the layout of the transformer's file.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "models/families/minimax_h3/names.h"
#include "models/request/attention_run.h"
#include "models/store/checkpoint/lora.h"
#include "tests/support/minimax_h3_files.h"

namespace sparsereel::models {
namespace {

using test::close_to;
using test::NamedTensors;

constexpr const char* kClass = "MiniMaxH3TransformerAlone";

/// Adds a model family whose only component is the transformer.
void add_transformer_alone() {
  static const bool added = [] {
    add_family({.pipeline_class = kClass,
                .name = "MiniMax-H3",  // LoRAs are refused if this name differs from theirs
                .parts = {minimax_h3_transformer_part()},
                .lora = minimax_h3_lora_names(),
                .samplers = {},
                .describe = nullptr});
    return true;
  }();
  EXPECT_TRUE(added);
}

class MiniMaxH3Lora : public ::testing::Test {
 protected:
  void SetUp() override {
    add_transformer_alone();
    std::filesystem::create_directories(folder_ / "transformer");
    test::write_text(folder_ / "model_index.json",
                     R"({"_class_name":")" + std::string(kClass) +
                         R"(","transformer":["diffusers","MiniMaxH3Transformer3DModel"]})");
    test::write_text(folder_ / "transformer/config.json", case_.content["config"].dump());
    test::write_tensors(folder_ / "transformer/diffusion_pytorch_model.safetensors", weights_);
  }
  ModelSpec spec() const {
    ModelSpec spec;
    spec.layers = 2;
    spec.heads = case_.content["config"]["num_attention_heads"].get<int64_t>();
    spec.head_dim = case_.content["config"]["attention_head_dim"].get<int64_t>();
    return spec;
  }
  /// Writes the transformer in each layout of the authors' names. Returns the files.
  std::vector<std::filesystem::path> files() const {
    const auto dim = case_.content["config"]["attention_head_dim"].get<int64_t>();
    std::filesystem::create_directories(folder_ / "authors");
    return {test::write_tensors(folder_ / "comfy.safetensors",
                                test::in_authors_names(weights_, FusedRows::by_kind, dim), "model.diffusion_model."),
            test::write_index(folder_ / "authors", test::in_authors_names(weights_, FusedRows::by_head, dim))};
  }
  /// Expects the transformer with the LoRA to predict the same as a transformer with the weights `changed`, in each
  /// layout.
  void expect_change(const NamedTensors& lora, const NamedTensors& changed, bool strict = true) const {
    const std::filesystem::path file = test::write_tensors(folder_ / "lora.safetensors", lora);
    const Prediction expected =
        predict(test::open_minimax_h3(test::write_tensors(folder_ / "changed.safetensors", changed), case_), case_);
    std::vector<std::filesystem::path> layouts = files();
    layouts.emplace_back();
    for (const std::filesystem::path& layout : layouts) {
      SCOPED_TRACE(layout);
      Checkpoint checkpoint = Checkpoint::open(folder_.path());
      if (!layout.empty()) checkpoint.replace("transformer", layout);
      add_loras(checkpoint, spec(), {{.file = file, .scale = 1}}, strict);
      const Prediction actual = predict(checkpoint.component("transformer"), case_);
      EXPECT_TRUE(close_to(actual.video, expected.video, 1e-5));
      EXPECT_TRUE(close_to(actual.sound, expected.sound, 1e-5));
    }
  }

  c10::InferenceMode inference_;
  const test::TemporaryFolder folder_;
  const test::ParityCase case_ = test::minimax_h3_case();
  const NamedTensors weights_ = test::minimax_h3_weights(case_, 1.5);
};

TEST_F(MiniMaxH3Lora, TakesTheNamesOfDiffusers) {
  NamedTensors lora, changed = weights_;
  for (const std::string layer : {"transformer_blocks.0.attn.to_q", "transformer_blocks.1.attn.to_v",
                                  "transformer_blocks.1.ff.net.0.proj", "transformer_blocks.0.attn.to_out.0"}) {
    at::Tensor& weight = changed.at(layer + ".weight");
    const at::Tensor down = at::randn({2, weight.size(1)}) * 0.1, up = at::randn({weight.size(0), 2});
    lora[layer + ".lora_A.default.weight"] = down;
    lora[layer + ".lora_B.default.weight"] = up;
    weight = weight + at::matmul(up, down);
  }
  expect_change(lora, changed);
}

TEST_F(MiniMaxH3Lora, ChangesTheOtherLayersOfAPrunedFile) {
  constexpr int64_t kWidth = 3;
  NamedTensors pruned, lora;
  for (const auto& [name, tensor] : weights_) {
    const bool is_modulation = name.ends_with("adaln_proj.linear.weight") || name == "norm_out.linear.weight";
    if (!name.starts_with("time_embedder."))
      pruned[name] = is_modulation ? tensor.narrow(1, 0, kWidth).contiguous() : tensor;
  }
  pruned["adaln_t_table"] = at::randn({9, kWidth});
  NamedTensors changed = pruned;
  at::Tensor& query = changed.at("transformer_blocks.0.attn.to_q.weight");
  for (const std::string layer : {"transformer_blocks.0.attn.to_q", "transformer_blocks.1.adaln_proj.linear"}) {
    const at::Tensor& weight = weights_.at(layer + ".weight");
    lora[layer + ".lora_A.weight"] = at::randn({2, weight.size(1)}) * 0.1;
    lora[layer + ".lora_B.weight"] = at::randn({weight.size(0), 2});
  }
  const std::string first = "transformer_blocks.0.attn.to_q.lora_";
  query = query + at::matmul(lora.at(first + "B.weight"), lora.at(first + "A.weight"));
  const auto file = test::write_tensors(folder_ / "lora.safetensors", lora);
  const auto add = [&](bool strict) {
    Checkpoint checkpoint = Checkpoint::open(folder_.path());
    checkpoint.replace("transformer", test::write_tensors(folder_ / "pruned.safetensors", pruned));
    const std::vector<std::string> warnings = add_loras(checkpoint, spec(), {{.file = file, .scale = 1}}, strict);
    EXPECT_EQ(warnings.size(), 1U);
    EXPECT_NE(warnings.back().find("1 for layers that either the LoRA or the checkpoint has in a pruned form"),
              std::string::npos)
        << warnings.back();
    return predict(checkpoint.component("transformer"), case_);
  };
  const auto exact = test::write_tensors(folder_ / "changed.safetensors", changed);
  EXPECT_TRUE(close_to(add(false).video, predict(test::open_minimax_h3(exact, case_), case_).video, 1e-5));
  EXPECT_TRUE(test::throws_error([&] { add(true); }, {"lora.safetensors", "adaln_proj"}));
}

/// In fused layers of such LoRAs, the rows are ordered as in a loaded model: all queries first. The order in the
/// model's file does not matter.
TEST_F(MiniMaxH3Lora, TakesFusedLayersInTheAuthorsNames) {
  NamedTensors lora, changed = weights_;
  for (const std::string list : {"blocks.1.", "token_refiner.blocks.0."}) {
    const std::string ours = list == "blocks.1." ? "transformer_blocks.1." : "token_refiner.refiner_blocks.0.";
    const at::Tensor& query = weights_.at(ours + "attn.to_q.weight");
    at::Tensor down = at::randn({2, query.size(1)}) * 0.1, up = at::randn({3 * query.size(0), 2});
    lora[list + "attn.qkv_proj.lora_A.weight"] = down;
    lora[list + "attn.qkv_proj.lora_B.weight"] = up;
    const std::vector<at::Tensor> kinds = at::matmul(up, down).chunk(3);
    for (size_t i = 0; i < kinds.size(); ++i) {
      at::Tensor& weight = changed.at(ours + std::vector{"attn.to_q", "attn.to_k", "attn.to_v"}[i] + ".weight");
      weight = weight + kinds[i];
    }
    at::Tensor& gated = changed.at(ours + "ff.net.0.proj.weight");
    down = at::randn({2, gated.size(1)}) * 0.1;
    up = at::randn({gated.size(0), 2});
    lora[list + "mlp.fc1.lora_A.weight"] = down;
    lora[list + "mlp.fc1.lora_B.weight"] = up;
    const std::vector<at::Tensor> halves = at::matmul(up, down).chunk(2);
    gated = gated + at::cat({halves[1], halves[0]});
  }
  expect_change(lora, changed);
}

/// DiffSynth-Studio trains with the authors' order of rows. Its LoRAs are recognized by PEFT's adapter name, which
/// stays in the names of their tensors.
TEST_F(MiniMaxH3Lora, TakesFusedLayersHeadByHeadIfTheyNameAnAdapter) {
  NamedTensors lora, changed = weights_;
  const std::string ours = "transformer_blocks.1.attn.", theirs = "blocks.1.attn.qkv_proj.lora_";
  const at::Tensor& query = weights_.at(ours + "to_q.weight");
  const int64_t dim = weights_.at(ours + "norm_q.weight").size(0), heads = query.size(0) / dim;
  ASSERT_GT(heads, 1);
  const at::Tensor down = at::randn({2, query.size(1)}) * 0.1, up = at::randn({3 * query.size(0), 2});
  lora[theirs + "A.default.weight"] = down;
  lora[theirs + "B.default.weight"] = up;
  const at::Tensor by_head = at::matmul(up, down).view({heads, 3, dim, query.size(1)});
  for (int64_t i = 0; i < 3; ++i) {
    at::Tensor& weight = changed.at(ours + std::vector{"to_q", "to_k", "to_v"}[static_cast<size_t>(i)] + ".weight");
    weight = weight + by_head.select(1, i).reshape(weight.sizes());
  }
  expect_change(lora, changed);
}

/// The LoRA was made for a pruned file, whose modulation layers have fewer columns (here 3). The whole model must leave
/// the LoRA's modulation out.
TEST_F(MiniMaxH3Lora, LeavesOutTheModulationOfALoraForAPrunedFile) {
  NamedTensors lora, changed = weights_;
  for (const std::string layer : {"transformer_blocks.0.attn.to_q", "transformer_blocks.1.adaln_proj.linear"}) {
    const bool is_modulation = layer.ends_with("linear");
    const at::Tensor& weight = weights_.at(layer + ".weight");
    lora[layer + ".lora_A.weight"] = at::randn({2, is_modulation ? 3 : weight.size(1)}) * 0.1;
    lora[layer + ".lora_B.weight"] = at::randn({weight.size(0), 2});
  }
  at::Tensor& query = changed.at("transformer_blocks.0.attn.to_q.weight");
  const std::string first = "transformer_blocks.0.attn.to_q.lora_";
  query = query + at::matmul(lora.at(first + "B.weight"), lora.at(first + "A.weight"));
  expect_change(lora, changed, /*strict=*/false);
}

}  // namespace
}  // namespace sparsereel::models
