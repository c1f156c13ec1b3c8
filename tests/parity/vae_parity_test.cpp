// Each family's VAE decoder against diffusers, and the names and shapes of the published ones; the data come from
// make_vae.py and make_wan_vae.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

TEST_P(VaeParity, DecodesInHalfPrecisionToWithinItsRounding) {
  const at::Tensor frames = load(at::kBFloat16)->decode(latents.to(at::kBFloat16), tiled);
  EXPECT_EQ(frames.scalar_type(), at::kBFloat16);
  const at::Tensor error = (sampled(frames).to(at::kFloat) - expected).square().mean().sqrt();
  // A few dozen roundings of 2^-9 each, each of its own sign.
  EXPECT_LT((error / expected.square().mean().sqrt()).item<double>(), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Families, VaeParity, ::testing::ValuesIn(test::parity_cases("vae_cases.json")),
                         test::case_name);

class PublishedNames : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  static bool of_decoder(const std::string& name) { return name.starts_with("decoder."); }
  std::string complaint() const { return test::load_complaint(zeros.component, test::load_vae); }

  test::ZeroComponent zeros{GetParam().family->vae_class, "", GetParam().content};
};

TEST_P(PublishedNames, AreExactlyThoseRead) {
  EXPECT_EQ(complaint(), "");
}

TEST_P(PublishedNames, AreAllNeededInTheirShape) {
  const nlohmann::json& names = GetParam().content["rest"];
  for (const auto& [name, shape] : names.items()) {
    if (!of_decoder(name)) continue;
    SCOPED_TRACE(name);
    const auto place = zeros.component.tensors.extract(name);
    EXPECT_THAT(complaint(), AllOf(HasSubstr("1 missing"), HasSubstr(name)));
    zeros.add(name, {4, 128, 3, 3, 5});
    EXPECT_THAT(complaint(), AllOf(HasSubstr("1 misshaped"), HasSubstr(name)));
    zeros.component.tensors[name] = place.mapped();
  }
  zeros.add("decoder.extra", {1});
  EXPECT_THAT(complaint(), AllOf(HasSubstr("1 unexpected"), HasSubstr("decoder.extra")));
}

INSTANTIATE_TEST_SUITE_P(Families, PublishedNames, ::testing::ValuesIn(test::parity_cases("vae_names.json")),
                         test::case_name);

}  // namespace
}  // namespace sparsereel::models
