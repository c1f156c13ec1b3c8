// Each family's VAE decoder against diffusers, and the names and shapes of the published one; CogVideoX's data come
// from make_vae.py.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

using ::testing::HasSubstr;

constexpr double kTolerance = 1e-5;

class VaeParity : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  static std::unique_ptr<VaeDecoder> load(at::ScalarType dtype) {
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
  EXPECT_TRUE(test::close_to(sampled(frames), expected, kTolerance));
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

// A weight file of the given names and shapes whose data is a hole: the meta device reads none of it. The class's own
// defaults are the published configuration.
class PublishedNames : public ::testing::TestWithParam<test::ParityFamily> {
 protected:
  PublishedNames() {
    names = test::read_data(GetParam().folder + "vae_names.json");
    component.class_name = GetParam().vae_class;
    component.config = {{"_class_name", GetParam().vae_class}};
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
    return load_vae(component, at::kMeta, at::kHalf);
  }

  const c10::InferenceMode inference;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("vae_names_" + std::to_string(::getpid()) + ".safetensors");
  nlohmann::json names;
  Component component;
};

TEST_P(PublishedNames, AreExactlyThoseRead) {
  EXPECT_NO_THROW(load());
}

TEST_P(PublishedNames, AreAllNeededInTheirShape) {
  const std::string first = names.begin().key();
  const std::string last = (--names.end()).key();
  names.erase(first);
  names[last] = {4, 128, 3, 3, 3};
  names["decoder.extra"] = {1};
  try {
    load();
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(first));
    EXPECT_THAT(error.what(), HasSubstr(last));
    EXPECT_THAT(error.what(), HasSubstr("decoder.extra"));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PublishedNames, ::testing::ValuesIn(test::whole_families()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace sparsereel::models
