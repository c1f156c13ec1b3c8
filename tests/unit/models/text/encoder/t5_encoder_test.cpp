// Tests which weights the T5 encoder accepts, its errors, and its buckets of relative positions. tests/parity compares
// its output.
#include "models/text/encoder/t5_encoder.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/weights/layer_weights.h"
#include "models/store/weights/tensor_source.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class T5EncoderTest : public ::testing::Test {
 protected:
  T5EncoderTest() {
    const fs::path folder = fs::path(SPARSEREEL_TEST_DATA) / "t5";
    component_.class_name = "T5EncoderModel";
    component_.origin = folder;
    component_.config_file = (folder / "config.json").string();
    component_.config = read_json(component_.config_file);
    component_.files = {std::make_shared<TensorFile>(folder / "model.safetensors")};
    for (const TensorEntry& entry : component_.files[0]->entries()) component_.tensors[entry.name] = {0, &entry};
  }

  T5Encoder load() const { return T5Encoder::load(component_, at::kCPU, at::kFloat); }
  std::string load_error() const {
    try {
      load();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  c10::InferenceMode inference_;
  Component component_;
};

TEST_F(T5EncoderTest, FindsTheEmbeddingByEitherName) {
  const at::Tensor ids = at::arange(6, at::kLong).unsqueeze(0);
  const at::Tensor expected = load().forward(ids);
  component_.tensors["encoder.embed_tokens.weight"] = component_.tensors.at("shared.weight");
  EXPECT_TRUE(load().forward(ids).equal(expected));
  component_.tensors.erase("shared.weight");
  EXPECT_TRUE(load().forward(ids).equal(expected));
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// Every matrix, even the embedding, is stored in 8 bits with a scale. The output must be that of the unpacked numbers,
/// both if layers stay in memory and if they are read when needed.
TEST_F(T5EncoderTest, MatchesUnpackedMatrices) {
  const test::TemporaryFolder folder;
  const at::Tensor scale = at::full({}, 0.015625, at::kFloat);
  std::vector<at::Tensor> kept;
  std::vector<TensorView> packed, twin;
  for (const auto& [name, place] : component_.tensors) {
    const TensorEntry& entry = *place.second;
    const std::span<const std::byte> data = component_.files[0]->data(entry);
    const bool is_norm = entry.shape.size() == 1;
    const at::Tensor numbers = kept.emplace_back(
        at::from_blob(const_cast<std::byte*>(data.data()), entry.shape, *scalar_type(entry.dtype)).to(at::kFloat));
    const at::Tensor small = kept.emplace_back((numbers / scale).to(at::kFloat8_e4m3fn));
    const at::Tensor back = kept.emplace_back(is_norm ? numbers : small.to(at::kFloat) * scale);
    twin.push_back({name, Dtype::f32, entry.shape, bytes_of(back)});
    packed.push_back(is_norm ? twin.back() : TensorView{name, Dtype::f8_e4m3, entry.shape, bytes_of(small)});
    if (is_norm) continue;
    const std::string stem = name.substr(0, name.rfind('.'));
    packed.push_back({stem + ".scale_weight", Dtype::f32, {}, bytes_of(scale)});
  }
  const auto hidden = [&](const std::vector<TensorView>& tensors, at::ScalarType dtype, Residence residence) {
    const fs::path file = folder / "encoder.safetensors";
    write_safetensors(file, tensors);
    Component component = component_;
    component.tensors.clear();
    component.files = {std::make_shared<TensorFile>(file)};
    for (const TensorEntry& entry : component.files[0]->entries()) component.tensors[entry.name] = {0, &entry};
    return T5Encoder::load(component, at::kCPU, dtype, residence).forward(at::arange(6, at::kLong).unsqueeze(0));
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const Residence residence : {Residence::device, Residence::file})
      EXPECT_TRUE(hidden(packed, dtype, residence).equal(hidden(twin, dtype, Residence::device))) << dtype;
  EXPECT_FALSE(hidden(packed, at::kFloat, Residence::device).equal(load().forward(at::arange(6).unsqueeze(0))));
}

TEST_F(T5EncoderTest, IgnoresDecoderWeights) {
  component_.tensors["decoder.block.0.layer.0.layer_norm.weight"] =
      component_.tensors.at("encoder.final_layer_norm.weight");
  component_.tensors["lm_head.weight"] = component_.tensors.at("shared.weight");
  EXPECT_EQ(load_error(), "none");
}

TEST_F(T5EncoderTest, ListsAllUnsuitableWeightsInOneError) {
  const auto [file, shared] = component_.tensors.at("shared.weight");
  TensorEntry extra = *shared, misshaped = *shared;  // the errors give the file's names
  extra.name = "encoder.block.9.layer.0.layer_norm.weight";
  misshaped.name = "encoder.block.1.layer.0.SelfAttention.q.weight";
  component_.tensors[extra.name] = {file, &extra};
  component_.tensors.erase("encoder.final_layer_norm.weight");
  component_.tensors[misshaped.name] = {file, &misshaped};
  EXPECT_THAT(load_error(), AllOf(HasSubstr("encoder.block.9.layer.0.layer_norm.weight"),
                                  HasSubstr("encoder.final_layer_norm.weight"),
                                  HasSubstr("encoder.block.1.layer.0.SelfAttention.q.weight")));
}

TEST_F(T5EncoderTest, RefusesImpossibleBuckets) {
  component_.config["relative_attention_num_buckets"] = 2;
  EXPECT_THAT(load_error(), AllOf(HasSubstr("config.json"), HasSubstr("relative_attention_num_buckets")));
  component_.config["relative_attention_num_buckets"] = 32;
  component_.config["relative_attention_max_distance"] = 8;
  EXPECT_THAT(load_error(), HasSubstr("relative_attention_max_distance"));
}

TEST_F(T5EncoderTest, RefusesIdsOutsideTheVocabulary) {
  const T5Encoder encoder = load();
  EXPECT_THROW(encoder.forward(at::full({1, 3}, encoder.config.vocab_size, at::kLong)), Error);
}

TEST(RelativePositionBuckets, SeparatePastAndFutureAndMergeDistantPositions) {
  const at::Tensor buckets = relative_position_buckets(300, 32, 128);
  EXPECT_EQ(buckets[0][0].item<int64_t>(), 0);
  EXPECT_EQ(buckets[5][0].item<int64_t>(), 5);
  EXPECT_EQ(buckets[0][5].item<int64_t>(), 21);
  EXPECT_EQ(buckets[299][0].item<int64_t>(), 15);
  EXPECT_EQ(buckets[0][299].item<int64_t>(), 31);
  EXPECT_EQ(buckets.min().item<int64_t>(), 0);
}

}  // namespace
}  // namespace sparsereel::models
