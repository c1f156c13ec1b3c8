// Tests how LoRAs and published differences change weights while the weights are read.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/lora.h"
#include "models/store/weights/weights.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/models/store/weights/weight_file.h"

namespace sparsereel::models {
namespace {

using test::TemporaryFolder;
using test::throws_error;

TEST(Weights, AddDeltasInFp32AndMapOtherTensors) {
  const TemporaryFolder folder;
  const at::Tensor weight = at::randn({6, 5}).to(at::kBFloat16), bias = at::randn({6}), up = at::randn({6, 2}),
                   down = at::randn({2, 5}).to(at::kHalf), diff = at::randn({6});
  write(folder.path(), {{"w", weight}, {"b", bias}, {"plain", bias}, {"up", up}, {"down", down}, {"diff", diff}});
  Component component = open_component(folder.path());
  const auto entry = [&](const char* name) { return component.tensors.at(name).second; };
  component.deltas["w"] = {{.file = component.files[0], .up = entry("up"), .down = entry("down"), .scale = 0.5},
                           {.file = component.files[0], .up = entry("up"), .down = entry("down"), .scale = -2}};
  component.deltas["b"] = {{.file = component.files[0], .up = entry("diff"), .scale = 3}};
  WeightReader weights(component, at::kCPU, at::kBFloat16);
  const at::Tensor sum = weight.to(at::kFloat) - 1.5 * at::matmul(up, down.to(at::kFloat));
  EXPECT_TRUE(weights.read(parameter("w", {6, 5}, /*fp32=*/true)).allclose(sum, 1e-6, 1e-6));
  EXPECT_TRUE(weights.tensor("w", {6, 5}).equal(weights.read(parameter("w", {6, 5}, true)).to(at::kBFloat16)));
  EXPECT_TRUE(weights.tensor("w", {6, 5}).equal(weights.tensor("w", {6, 5}))) << "each reading adds anew";
  WeightReader wide(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(wide.tensor("b", {6}).allclose(bias + 3 * diff));
  EXPECT_FALSE(inside(wide.tensor("b", {6}), component));
  EXPECT_TRUE(inside(wide.tensor("plain", {6}), component)) << "no copy of what nothing is added to";
  const at::Tensor packed = wide.read({.names = {"b", "plain"}, .stored = {6}, .shape = {12}});
  EXPECT_TRUE(packed.allclose(at::cat({bias + 3 * diff, bias}))) << "one part of a packed tensor";
  WeightReader described(component, at::kMeta, at::kFloat);
  EXPECT_TRUE(described.tensor("w", {6, 5}).is_meta());
}

TEST(Weights, NameAFileWhoseDeltasGiveNaNOrInf) {
  const TemporaryFolder folder;
  const at::Tensor one = at::ones({2, 2}), nan = at::full({2, 2}, NAN);
  write(folder.path(), {{"w", one}, {"bad", nan}, {"up", one}, {"diff", nan}});
  Component component = open_component(folder.path());
  const auto entry = [&](const char* name) { return component.tensors.at(name).second; };
  const auto refused = [&](const char* tensor, const std::vector<WeightDelta>& deltas, const char* words) {
    component.deltas = {{tensor, deltas}};
    const std::string file = component.files[0]->path().string();
    return throws_error([&] { WeightReader(component, at::kCPU, at::kHalf).tensor(tensor, {2, 2}); }, {file, words});
  };
  const auto& file = component.files[0];
  EXPECT_TRUE(refused("w", {{.file = file, .up = entry("diff")}}, "\"diff\" holds NaN or Inf"));
  EXPECT_TRUE(refused("w", {{.file = file, .up = entry("up"), .down = entry("diff")}}, "\"diff\" holds NaN or Inf"));
  EXPECT_TRUE(refused("w", {{.file = file, .up = entry("up")}, {.file = file, .up = entry("up"), .scale = 1e6}},
                      "with the scale 1e+06"));
  component.deltas = {{"bad", {{.file = file, .up = entry("up")}}}};
  EXPECT_NO_THROW(WeightReader(component, at::kCPU, at::kHalf).tensor("bad", {2, 2})) << "the checkpoint's own";
}

TEST(Weights, AddADeltaToAConvolutionOfAnyStoredShape) {
  const TemporaryFolder folder;
  const at::Tensor weight = at::randn({6, 3, 1, 2, 2}), up = at::randn({6, 2}), down = at::randn({2, 12});
  const at::Tensor folded = weight.reshape({18, 1, 2, 2});
  write(folder.path(), {{"w", weight}, {"folded", folded}, {"up", up}, {"down", down}});
  Component component = open_component(folder.path());
  const auto entry = [&](const char* name) { return component.tensors.at(name).second; };
  for (const char* name : {"w", "folded"})
    component.deltas[name] = {{.file = component.files[0], .up = entry("up"), .down = entry("down"), .scale = 0.5}};
  const at::Tensor sum = weight + 0.5 * at::matmul(up, down).view({6, 3, 1, 2, 2});
  WeightReader weights(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(weights.tensor("w", {6, 3, 1, 2, 2}).allclose(sum));
  Parameter parameter{.names = {"folded"}, .stored = {6, 3, 1, 2, 2}, .shape = {6, 3, 1, 2, 2}};
  parameter.reshaped = true;
  EXPECT_TRUE(weights.read(parameter).allclose(sum));
}

TEST(Weights, AppendZerosToAWidenedTensorBeforeDeltasAreAdded) {
  const TemporaryFolder folder;
  const at::Tensor weight = at::randn({6, 3, 2, 2}).to(at::kHalf), up = at::randn({6, 2}), down = at::randn({2, 24});
  write(folder.path(), {{"w", weight}, {"changed", weight}, {"up", up}, {"down", down}});
  Component component = open_component(folder.path());
  const auto entry = [&](const char* name) { return component.tensors.at(name).second; };
  component.widened = {{"w", {6, 6, 2, 2}}, {"changed", {6, 6, 2, 2}}};
  component.deltas["changed"] = {{.file = component.files[0], .up = entry("up"), .down = entry("down"), .scale = 0.5}};
  const at::Tensor wider = at::cat({weight, at::zeros_like(weight)}, 1);
  WeightReader weights(component, at::kCPU, at::kHalf);
  EXPECT_TRUE(weights.tensor("w", {6, 6, 2, 2}).equal(wider));
  const at::Tensor sum = wider.to(at::kFloat) + 0.5 * at::matmul(up, down).view({6, 6, 2, 2});
  EXPECT_TRUE(weights.read(parameter("changed", {6, 6, 2, 2}, /*fp32=*/true)).allclose(sum, 1e-6, 1e-6));
  const at::Tensor both = weights.read({.names = {"w", "changed"}, .stored = {6, 6, 2, 2}, .shape = {12, 6, 2, 2}});
  EXPECT_TRUE(both.equal(at::cat({wider, sum.to(at::kHalf)}))) << "parts of one parameter";
  EXPECT_TRUE(WeightReader(component, at::kMeta, at::kHalf).tensor("w", {6, 6, 2, 2}).is_meta());
}

TEST(Weights, AddDeltasOfALargeTensorInPieces) {
  const TemporaryFolder folder;
  const int64_t rows = 1030, width = 4096;  // processed as 512 + 512 + 6 rows
  const at::Tensor weight = at::randn({rows, width}).to(at::kBFloat16), up = at::randn({rows, 2}),
                   down = at::randn({2, width}), diff = at::randn({rows, width}).to(at::kHalf);
  write(folder.path(), {{"w", weight}, {"up", up}, {"down", down}, {"diff", diff}});
  Component component = open_component(folder.path());
  const auto entry = [&](const char* name) { return component.tensors.at(name).second; };
  component.deltas["w"] = {{.file = component.files[0], .up = entry("up"), .down = entry("down"), .scale = 0.25},
                           {.file = component.files[0], .up = entry("diff"), .scale = -3}};
  const at::Tensor sum = weight.to(at::kFloat) + 0.25 * at::matmul(up, down) - 3 * diff.to(at::kFloat);
  WeightReader weights(component, at::kCPU, at::kBFloat16);
  EXPECT_TRUE(weights.read(parameter("w", {rows, width}, /*fp32=*/true)).allclose(sum, 1e-5, 1e-5));
  EXPECT_TRUE(
      weights.tensor("w", {rows, width}).equal(weights.read(parameter("w", {rows, width}, true)).to(at::kBFloat16)));
}

/// LoRA files of published distilled models also hold differences of whole tensors: norms, biases and tables. They use
/// the names of the model's authors.
TEST(Weights, AddPublishedDifferencesToNormsBiasesAndTables) {
  const TemporaryFolder folder;
  const std::map<std::string, std::string> layers = {
      {"blocks.0.self_attn.norm_q.diff", "blocks.0.attn1.norm_q.weight"},
      {"blocks.1.cross_attn.norm_k.diff", "blocks.1.attn2.norm_k.weight"},
      {"blocks.1.norm3.diff", "blocks.1.norm2.weight"},
      {"blocks.1.norm3.diff_b", "blocks.1.norm2.bias"},
      {"blocks.0.cross_attn.o.diff_b", "blocks.0.attn2.to_out.0.bias"},
      {"blocks.1.ffn.0.diff_b", "blocks.1.ffn.net.0.proj.bias"},
      {"blocks.1.diff_m", "blocks.1.scale_shift_table"},
      {"head.diff_m", "scale_shift_table"},
      {"head.head.diff", "proj_out.weight"},
      {"head.head.diff_b", "proj_out.bias"},
      {"patch_embedding.diff", "patch_embedding.weight"},
      {"patch_embedding.diff_b", "patch_embedding.bias"},
      {"time_embedding.0.diff", "condition_embedder.time_embedder.linear_1.weight"},
      {"time_projection.1.diff_b", "condition_embedder.time_proj.bias"}};
  Checkpoint model = Checkpoint::open(SPARSEREEL_TEST_DATA "/wan/pipeline");
  const Component plain = model.component("transformer");
  const auto shape = [&](const std::string& name) { return plain.tensors.at(name).second->shape; };
  std::vector<std::pair<std::string, at::Tensor>> diffs;
  for (const auto& [theirs, ours] : layers) diffs.emplace_back("diffusion_model." + theirs, at::randn(shape(ours)));
  write(folder.path(), diffs);
  add_loras(model, describe(model), {{.file = folder / "model.safetensors", .scale = -0.5}});
  EXPECT_EQ(model.component("transformer").deltas.size(), layers.size());
  WeightReader before(plain, at::kCPU, at::kFloat), after(model.component("transformer"), at::kCPU, at::kFloat);
  for (const auto& [name, diff] : diffs) {
    const std::string& ours = layers.at(name.substr(std::string("diffusion_model.").size()));
    EXPECT_TRUE(after.tensor(ours, shape(ours)).equal(before.tensor(ours, shape(ours)) - 0.5 * diff)) << name;
  }
}

}  // namespace
}  // namespace sparsereel::models
