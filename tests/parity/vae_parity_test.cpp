// Compares each family's VAE with its reference (diffusers, or Open-Sora-Plan's own code), and checks the names and
// shapes of the published ones. The data come from make_vae.py, make_wan_vae.py, make_mochi_vae.py,
// make_open_sora_plan_vae.py and make_tiny_frame.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/families.h"
#include "tests/support/golden.h"
#include "tests/support/zero_component.h"

namespace sparsereel::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class VaeParity : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  static std::unique_ptr<Vae> load(at::ScalarType dtype) {
    const test::ParityFamily& family = *GetParam().family;
    return load_vae(test::vae_component(family, GetParam().content["vae"]), at::kCPU, dtype);
  }
  // The golden files keep every third row and column.
  static at::Tensor sampled(const at::Tensor& frames) {
    return frames.slice(3, 0, c10::nullopt, 3).slice(4, 0, c10::nullopt, 3);
  }

  const c10::InferenceMode inference;
  const test::Golden golden{GetParam().family->folder + "vae_golden"};
  const std::string name = GetParam().name;
  const bool tiled = GetParam().content["tiled"];
  const at::Tensor latents = golden[name + ".latents"];
  const at::Tensor expected = golden[name + ".frames"];
};

TEST_P(VaeParity, DecodesAsDiffusersDoes) {
  const at::Tensor frames = load(at::kFloat)->decode(latents, tiled);
  EXPECT_TRUE(test::close_to(sampled(frames), expected, GetParam().family->vae_tolerance));
}

TEST_P(VaeParity, DecodesInHalfPrecisionWithinItsRounding) {
  const at::Tensor frames = load(at::kBFloat16)->decode(latents.to(at::kBFloat16), tiled);
  EXPECT_EQ(frames.scalar_type(), at::kBFloat16);
  const at::Tensor error = (sampled(frames).to(at::kFloat) - expected).square().mean().sqrt();
  // The error is a few dozen roundings of 2^-9 each, with random signs.
  EXPECT_LT((error / expected.square().mean().sqrt()).item<double>(), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Families, VaeParity, ::testing::ValuesIn(test::parity_cases("vae_cases.json")),
                         test::case_name);

class EncoderParity : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  static LatentDistribution encode(at::ScalarType dtype) {
    const nlohmann::json& content = GetParam().content;
    const auto vae =
        load_vae(test::vae_component(*GetParam().family, content["vae"]), at::kCPU, dtype, VaeParts::encoder);
    const at::Tensor frames = test::frames_to_encode(content["frames"].get<std::vector<int64_t>>());
    return vae->encode(frames.to(dtype), content["tiled"]);
  }
  static double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
    return ((actual.to(at::kFloat) - expected).square().mean() / expected.square().mean()).sqrt().item<double>();
  }

  const c10::InferenceMode inference;
  const test::Golden golden{GetParam().family->folder + "vae_encoder_golden"};
  const std::string name = GetParam().name;
};

TEST_P(EncoderParity, EncodesAsDiffusersDoes) {
  const LatentDistribution latents = encode(at::kFloat);
  EXPECT_TRUE(test::close_to(latents.mean, golden[name + ".mean"], 1e-4));
  ASSERT_EQ(latents.deviation.defined(), golden.contains(name + ".deviation"));
  if (!latents.deviation.defined()) return;
  EXPECT_TRUE(test::close_to(latents.deviation, golden[name + ".deviation"], 1e-4));
}

TEST_P(EncoderParity, EncodesInHalfPrecisionWithinItsRounding) {
  const LatentDistribution latents = encode(at::kBFloat16);
  EXPECT_EQ(latents.mean.scalar_type(), at::kBFloat16);
  // The error is a few dozen roundings of 2^-9 each, with random signs.
  EXPECT_LT(relative_error(latents.mean, golden[name + ".mean"]), 0.05);
  if (!latents.deviation.defined()) return;
  EXPECT_LT(relative_error(latents.deviation, golden[name + ".deviation"]), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderParity, ::testing::ValuesIn(test::parity_cases("vae_encoder_cases.json")),
                         test::case_name);

/// Encodes and decodes a frame of a video of the tiny model with its own VAE.
TEST(TinyModel, ReconstructsAFrameAsDiffusersDoes) {
  const c10::InferenceMode inference;
  const test::Golden golden("tiny_frame_golden");
  const at::Tensor pixels = golden["pixels"].to(at::kFloat).div(255);  // [H, W, 3]
  const auto vae =
      load_vae(Checkpoint::open(SPARSEREEL_TINY_MODEL).component("vae"), at::kCPU, at::kFloat, VaeParts::both);
  const at::Tensor frame = pixels.permute({2, 0, 1}).mul(2).sub(1).view({1, 3, 1, pixels.size(0), pixels.size(1)});
  const LatentDistribution latents = vae->encode(frame, false);
  EXPECT_TRUE(test::close_to(latents.mean, golden["mean"], 1e-4));
  EXPECT_TRUE(test::close_to(latents.deviation, golden["deviation"], 1e-4));
  const at::Tensor error = (vae->decode(latents.mean, false) - frame).div(2);
  const double psnr = -10 * std::log10(error.square().mean().item<double>());
  RecordProperty("psnr", std::to_string(psnr));
  EXPECT_NEAR(psnr, golden["psnr"].item<double>(), 0.01);
  EXPECT_GT(psnr, 30);
}

/// How to load one part of a published VAE, and which of the VAE's tensors that part needs.
struct PublishedPart {
  test::Load load;
  std::function<bool(const std::string& name)> needed;
};

class PublishedNames : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  std::string complaint(const PublishedPart& part) const { return test::load_complaint(zeros.component, part.load); }
  void expect_all_needed(const PublishedPart& part, const std::string& extra);
  std::string one_more(const PublishedPart& part) const;

  static inline const PublishedPart decoder = {test::load_vae,
                                               [](const std::string& name) { return name.starts_with("decoder."); }};
  static inline const PublishedPart encoder = {test::load_encoder, [](const std::string& name) {
                                                 return name.starts_with("encoder.") || name.starts_with("quant_conv.");
                                               }};
  test::ZeroComponent zeros{GetParam().family->vae_class, "", GetParam().content};
};

/// Returns the name that a weight of the part would have in a block 99, which no model has.
std::string PublishedNames::one_more(const PublishedPart& part) const {
  for (const auto& [name, shape] : GetParam().content["rest"].items()) {
    const std::string other =
        std::regex_replace(name, std::regex("[.][0-9]+[.]"), ".99.", std::regex_constants::format_first_only);
    if (part.needed(name) && other != name) return other;
  }
  return {};
}

void PublishedNames::expect_all_needed(const PublishedPart& part, const std::string& extra) {
  for (const auto& [name, shape] : GetParam().content["rest"].items()) {
    if (!part.needed(name)) continue;
    SCOPED_TRACE(name);
    const auto place = zeros.component.tensors.extract(name);
    EXPECT_THAT(complaint(part), AllOf(HasSubstr("1 missing"), HasSubstr(name)));
    zeros.add(name, {4, 128, 3, 3, 5});
    EXPECT_THAT(complaint(part), AllOf(HasSubstr("1 misshaped"), HasSubstr(name)));
    zeros.component.tensors[name] = place.mapped();
  }
  zeros.add(extra, {1});
  EXPECT_EQ(complaint(part), "") << "a stranger is left out";
  const std::string more = one_more(part);
  zeros.add(more, {1});
  EXPECT_THAT(complaint(part), AllOf(HasSubstr("1 unexpected"), HasSubstr(more)));
}

TEST_P(PublishedNames, AreExactlyTheNamesThatLoadReads) {
  EXPECT_EQ(complaint(decoder), "");
}

TEST_P(PublishedNames, AreAllRequiredInTheirShape) {
  expect_all_needed(decoder, "decoder.extra");
}

INSTANTIATE_TEST_SUITE_P(Families, PublishedNames, ::testing::ValuesIn(test::parity_cases("vae_names.json")),
                         test::case_name);

class PublishedEncoderNames : public PublishedNames {};

TEST_P(PublishedEncoderNames, AreExactlyTheNamesThatLoadReads) {
  EXPECT_EQ(complaint(encoder), "");
}

TEST_P(PublishedEncoderNames, AreAllRequiredInTheirShape) {
  expect_all_needed(encoder, "encoder.extra");
}

/// Returns the cases of the families whose VAE encodes.
std::vector<test::ParityCase> encoder_names() {
  std::vector<test::ParityCase> cases = test::parity_cases("vae_names.json");
  std::erase_if(cases, [](const test::ParityCase& one) {
    return test::read_data(one.family->folder + "vae_encoder_cases.json").empty();
  });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, PublishedEncoderNames, ::testing::ValuesIn(encoder_names()), test::case_name);

}  // namespace
}  // namespace sparsereel::models
