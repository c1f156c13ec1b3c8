// Tests that random weights depend only on name and seed, keep activations at unit scale, and can replace a checkpoint.
#include "models/store/weights/random_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/layer_weights.h"
#include "models/store/weights/weights.h"
#include "models/text/encoder/t5_encoder.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

constexpr const char* kClass = "CogVideoXTransformer3DModel";

nlohmann::json architecture() {
  return {{"transformer", {{"num_layers", 2}}},
          {"vae", nlohmann::json::object()},
          {"text_encoder",
           {{"d_model", 32},
            {"d_kv", 8},
            {"d_ff", 64},
            {"num_layers", 3},
            {"num_heads", 4},
            {"vocab_size", 50},
            {"feed_forward_proj", "gated-gelu"}}},
          {"scheduler", {{"_class_name", "CogVideoXDPMScheduler"}}}};
}

TEST(RandomWeights, DependOnlyOnNameAndSeed) {
  const auto weight = [](const char* name, uint64_t seed) {
    return random_weight(name, {8, 4}, at::kCPU, at::kFloat, seed);
  };
  const at::Tensor first = weight("a.weight", 1);
  weight("other.weight", 1);
  EXPECT_TRUE(weight("a.weight", 1).equal(first));
  EXPECT_FALSE(weight("b.weight", 1).equal(first));
  EXPECT_FALSE(weight("a.weight", 2).equal(first));
}

TEST(RandomWeights, KeepUnitScaleAtAnyWidth) {
  for (const int64_t inputs : {64, 4096}) {
    const at::Tensor weight = random_weight("w.weight", {256, inputs}, at::kCPU, at::kFloat, 0);
    const at::Tensor out = at::matmul(weight, at::randn({inputs, 64}));
    EXPECT_NEAR(out.std().item<double>(), 1, 0.1) << inputs;
  }
  EXPECT_TRUE(random_weight("norm.weight", {7}, at::kCPU, at::kBFloat16, 0).equal(at::ones({7}, at::kBFloat16)));
  const at::Tensor bias = random_weight("norm.bias", {4096}, at::kCPU, at::kFloat, 0);
  EXPECT_NEAR(bias.std().item<double>(), 0.02, 0.002);
}

TEST(RandomWeights, ReplaceAModelFolder) {
  const Checkpoint folder = Checkpoint::with_random_weights("some.yaml", kClass, architecture());
  EXPECT_FALSE(folder.tokenizer());
  EXPECT_EQ(folder.pipeline_class(), "CogVideoXPipeline");
  EXPECT_EQ(folder.component_class("scheduler"), "CogVideoXDPMScheduler");
  const Component component = folder.component("text_encoder");
  EXPECT_EQ(component.config_file, "some.yaml: architecture.text_encoder");
  WeightReader reader(component, at::kCPU, at::kHalf);
  EXPECT_TRUE(reader.contains("anything"));
  EXPECT_EQ(reader.tensor("x.weight", {3, 5}).scalar_type(), at::kHalf);
  EXPECT_EQ(reader.read(parameter("x.weight", {3, 5}, /*fp32=*/true)).scalar_type(), at::kFloat);
  EXPECT_NO_THROW(reader.check_complete());
  WeightReader meta(component, at::kMeta, at::kHalf);
  EXPECT_TRUE(meta.tensor("huge.weight", {int64_t{1} << 30, int64_t{1} << 20}).is_meta());
}

TEST(RandomWeights, NameMissingPartsOfAnArchitecture) {
  for (const char* name : {"transformer", "vae", "text_encoder", "scheduler"}) {
    nlohmann::json without = architecture();
    without.erase(name);
    EXPECT_TRUE(test::throws_error([&] { Checkpoint::with_random_weights("some.yaml", kClass, without); },
                                   {"some.yaml", std::string("architecture.") + name}));
  }
  EXPECT_TRUE(test::throws_error(
      [&] { Checkpoint::with_random_weights("some.yaml", "OtherTransformer", architecture()); }, {"some.yaml"}));
  nlohmann::json other = architecture();
  other["scheduler"]["_class_name"] = "EulerDiscreteScheduler";
  EXPECT_TRUE(test::throws_error([&] { Checkpoint::with_random_weights("some.yaml", kClass, other); },
                                 {"some.yaml", "EulerDiscreteScheduler"}));
}

TEST(RandomIds, FollowTheTextAndStayInTheVocabulary) {
  const at::Tensor first = random_token_ids("a red circle", 300, 50);
  EXPECT_EQ(first.sizes(), at::IntArrayRef({300}));
  EXPECT_TRUE(random_token_ids("a red circle", 300, 50).equal(first));
  EXPECT_FALSE(random_token_ids("a blue star", 300, 50).equal(first));
  EXPECT_GE(first.min().item<int64_t>(), 0);
  EXPECT_LT(first.max().item<int64_t>(), 50);
}

TEST(RandomIds, MatchTheTokenCountOfTheText) {
  EXPECT_EQ(random_token_count("", 512), 1);
  EXPECT_EQ(random_token_count("a red circle moving to the right on a blue background", 512), 14);
  EXPECT_EQ(random_token_count(std::string(5000, 'a'), 512), 512);
}

TEST(StreamedEncoder, MatchesTheLoadedEncoder) {
  const Component component =
      Checkpoint::with_random_weights("some.yaml", kClass, architecture()).component("text_encoder");
  const at::Tensor ids = at::stack({random_token_ids("one", 9, 50), random_token_ids("two", 9, 50)});
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    const T5Encoder encoder = T5Encoder::load(component, at::kCPU, dtype);
    const T5Encoder streamed = T5Encoder::load(component, at::kCPU, dtype, Residence::file);
    for (int prompt = 0; prompt < 2; ++prompt) EXPECT_TRUE(streamed.forward(ids).equal(encoder.forward(ids)));
    uint64_t bytes = encoder.shared.nbytes() + encoder.relative_bias.nbytes() + encoder.final_norm.nbytes();
    for (const T5Layer& layer : encoder.layers)
      for (const at::Tensor* weight :
           {&layer.attention_norm, &layer.q.weight, &layer.k.weight, &layer.v.weight, &layer.attention_out.weight,
            &layer.feed_forward_norm, &layer.wi_0.weight, &layer.wi_1.weight, &layer.wo.weight})
        bytes += weight->nbytes();
    EXPECT_EQ(encoder.weight_bytes(), bytes);
    EXPECT_EQ(streamed.weight_bytes(), bytes);
  }
}

}  // namespace
}  // namespace sparsereel::models
