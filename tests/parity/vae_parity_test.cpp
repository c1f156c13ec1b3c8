// CogVideoX's VAE decoder against diffusers (tests/parity/make_vae.py), and the names and shapes of the published one.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/vae/vae.h"
#include "tests/support/golden.h"
#include "tests/support/vae_component.h"

namespace sparsereel::models {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 1e-5;

struct Case {
  const char* name;
  const char* vae;
  bool tiled;
};

class VaeParity : public ::testing::TestWithParam<Case> {
 protected:
  // make_vae.py keeps every third row and column.
  static at::Tensor sampled(const at::Tensor& frames) {
    return frames.slice(3, 0, c10::nullopt, 3).slice(4, 0, c10::nullopt, 3);
  }

  const c10::InferenceMode inference;
  const test::Golden golden{"vae_golden"};
  const std::string name = GetParam().name;
  const at::Tensor latents = golden[name + ".latents"];
  const at::Tensor expected = golden[name + ".frames"];
};

TEST_P(VaeParity, DecodesAsDiffusersDoes) {
  const Component component = test::vae_component(GetParam().vae);
  const at::Tensor frames = load_cogvideox_vae(component, at::kCPU, at::kFloat)->decode(latents, GetParam().tiled);
  EXPECT_TRUE(test::close_to(sampled(frames), expected, kTolerance));
}

TEST_P(VaeParity, DecodesInHalfPrecisionToWithinItsRounding) {
  const Component component = test::vae_component(GetParam().vae);
  const auto vae = load_cogvideox_vae(component, at::kCPU, at::kBFloat16);
  const at::Tensor frames = vae->decode(latents.to(at::kBFloat16), GetParam().tiled);
  EXPECT_EQ(frames.scalar_type(), at::kBFloat16);
  const at::Tensor error = (sampled(frames).to(at::kFloat) - expected).square().mean().sqrt();
  // A few dozen roundings of 2^-9 each, each of its own sign.
  EXPECT_LT((error / expected.square().mean().sqrt()).item<double>(), 0.05);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, VaeParity,
    ::testing::Values(Case{"one_frame", "vae_small", false}, Case{"two_frames", "vae_small", false},
                      Case{"three_frames", "vae_small", false}, Case{"five_frames", "vae_small", false},
                      Case{"six_frames", "vae_small", false}, Case{"tiled", "vae_small", true},
                      Case{"tiled_one_axis", "vae_small", true}, Case{"deep_three_frames", "vae_deep", false},
                      Case{"deep_four_frames", "vae_deep", false}),
    [](const auto& one) { return std::string(one.param.name); });

// A weight file of the given names and shapes whose data is a hole: the meta device reads none of it.
class PublishedNames : public ::testing::Test {
 protected:
  PublishedNames() {
    names = read_json(std::string(SPARSEREEL_TEST_DATA) + "/vae_names.json");
    component.class_name = "AutoencoderKLCogVideoX";
    component.config = {{"_class_name", "AutoencoderKLCogVideoX"}};
    component.config_file = "vae/config.json";
  }
  ~PublishedNames() override { std::filesystem::remove(path); }

  std::unique_ptr<VaeDecoder> load() {
    nlohmann::json header;
    uint64_t end = 0;
    for (const auto& [name, shape] : names.items()) {
      uint64_t bytes = 2;
      for (const uint64_t size : shape) bytes *= size;
      header[name] = {{"dtype", "F16"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
      end += bytes;
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << text;
    std::filesystem::resize_file(path, 8 + length + end);
    component.files = {std::make_shared<SafetensorsFile>(path)};
    component.tensors.clear();
    for (const TensorEntry& entry : component.files[0]->header().entries) component.tensors[entry.name] = {0, &entry};
    return load_cogvideox_vae(component, at::kMeta, at::kHalf);
  }

  const c10::InferenceMode inference;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("vae_names_" + std::to_string(::getpid()) + ".safetensors");
  nlohmann::json names;
  Component component;
};

TEST_F(PublishedNames, OfCogVideoX2bAreExactlyThoseRead) {
  EXPECT_NO_THROW(load());
}

TEST_F(PublishedNames, AreAllNeededInTheirShape) {
  names.erase("decoder.norm_out.conv_y.conv.bias");
  names["decoder.conv_out.conv.weight"] = {4, 128, 3, 3, 3};
  names["decoder.extra"] = {1};
  try {
    load();
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("decoder.norm_out.conv_y.conv.bias"));
    EXPECT_THAT(error.what(), HasSubstr("decoder.conv_out.conv.weight"));
    EXPECT_THAT(error.what(), HasSubstr("decoder.extra"));
  }
}

}  // namespace
}  // namespace sparsereel::models
