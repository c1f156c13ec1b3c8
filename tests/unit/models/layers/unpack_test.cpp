// Weights that are unpacked for each product: ggml's blocks as the package gguf unpacks them (parity/make_gguf.py),
// 8-bit numbers as torch does.
#include "models/layers/unpack.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstring>

#include "models/checkpoint/tensor_file.h"
#include "models/layers/linear.h"

namespace sparsereel::models {
namespace {

at::Tensor random_bytes(int64_t count) {
  at::Tensor bytes = at::randint(0, 256, {count}, at::kByte);
  return bytes.masked_fill_(bytes.bitwise_and(0x7C).eq(0x7C), 0x33);  // no half of it is NaN or Inf
}

TEST(Unpack, GivesWhatGgufGives) {
  const std::string folder = std::string(SPARSEREEL_TEST_DATA) + "/gguf/";
  const TensorFile packed(folder + "blocks.gguf"), golden(folder + "blocks.safetensors");
  EXPECT_EQ(packed.metadata().at("general.architecture"), "wan");
  EXPECT_EQ(packed.entries().size(), 13U);
  for (const TensorEntry& from : packed.entries()) {
    const TensorEntry& to = *golden.find(from.name);
    ASSERT_EQ(name(from.dtype), from.name);
    ASSERT_EQ(from.shape, to.shape);
    const auto elements = static_cast<int64_t>(from.elements()), rows = is_packed(from.dtype) ? from.shape[0] : 1;
    EXPECT_EQ(from.bytes, static_cast<size_t>(rows * packed_bytes(from.dtype, elements / rows)));
    const auto data = packed.data(from), expected = golden.data(to);
    const at::Tensor bytes = at::empty({std::ssize(data)}, at::kByte), values = at::empty({elements}, at::kFloat);
    std::memcpy(bytes.mutable_data_ptr(), data.data(), data.size());
    std::memcpy(values.mutable_data_ptr(), expected.data(), expected.size());
    const at::Tensor found = unpack(bytes, {{from.dtype, rows, elements / rows, 0}}, {}, at::kFloat);
    EXPECT_TRUE(at::equal(found.view(-1), values)) << from.name;
  }
}

TEST(Unpack, EveryByteOfAnEightBitFloatIsWhatTorchSays) {
  const at::Tensor bytes = at::arange(256, at::kByte);
  const std::pair<Dtype, at::ScalarType> kinds[] = {
      {Dtype::f8_e4m3, at::kFloat8_e4m3fn}, {Dtype::f8_e5m2, at::kFloat8_e5m2}, {Dtype::i8, at::kChar}};
  for (const auto& [dtype, scalar] : kinds) {
    const at::Tensor expected = bytes.view(scalar).to(at::kFloat);
    const at::Tensor found = unpack(bytes, {{dtype, 1, 256, 0}}, {}, at::kFloat)[0];
    EXPECT_TRUE(at::allclose(found, expected, 0, 0, /*equal_nan=*/true)) << static_cast<int>(dtype);
  }
}

TEST(Unpack, NumbersStayThemselves) {
  const at::Tensor numbers = at::randn({3, 16});
  const std::pair<Dtype, at::ScalarType> kinds[] = {
      {Dtype::f32, at::kFloat}, {Dtype::f16, at::kHalf}, {Dtype::bf16, at::kBFloat16}};
  for (const auto& [dtype, scalar] : kinds) {
    const at::Tensor stored = numbers.to(scalar);
    const at::Tensor found = unpack(stored.view(-1).view(at::kByte), {{dtype, 3, 16, 0}}, {}, at::kFloat);
    EXPECT_TRUE(at::equal(found, stored.to(at::kFloat))) << static_cast<int>(dtype);
  }
}

TEST(Unpack, RowsAreScaledInFp32AndRoundedOnce) {
  const at::Tensor bytes = at::randint(0, 256, {4 * 32}, at::kByte), scale = at::rand({4}) + 0.1;
  const at::Tensor found = unpack(bytes, {{Dtype::i8, 4, 32, 0}}, scale, at::kBFloat16);
  const at::Tensor expected = (bytes.view(at::kChar).view({4, 32}).to(at::kFloat) * scale.unsqueeze(1));
  EXPECT_TRUE(at::equal(found, expected.to(at::kBFloat16)));
}

/// The threads that share a large matrix know nothing of their caller's mode.
TEST(Unpack, ALargeMatrixIsUnpackedInInferenceModeToo) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const at::Tensor bytes = at::randint(0, 256, {1024 * 512}, at::kByte);
  const std::vector<StoredRows> stored = {{Dtype::i8, 1024, 512, 0}};
  const at::Tensor expected = bytes.view(at::kChar).view({1024, 512}).to(at::kFloat);
  for (const bool inference : {true, false}) {
    const c10::InferenceMode mode(inference);
    EXPECT_TRUE(unpack(bytes, stored, {}, at::kFloat).equal(expected));
  }
  at::set_num_threads(threads);
}

TEST(Unpack, WholeBlocksOnly) {
  EXPECT_TRUE(can_unpack(Dtype::q4_k, 512));
  EXPECT_FALSE(can_unpack(Dtype::q4_k, 384));
  EXPECT_TRUE(can_unpack(Dtype::q8_0, 96));
  EXPECT_FALSE(can_unpack(Dtype::q8_0, 40));
  EXPECT_FALSE(can_unpack(Dtype::f8_e4m3, 12));
  EXPECT_FALSE(can_unpack(Dtype::i64, 256));
  EXPECT_EQ(packed_bytes(Dtype::q6_k, 512), 420);
}

/// A fused layer of three parts that are packed each in its own way.
TEST(Linear, OfMixedPartsIsThatOfTheirValues) {
  std::vector<StoredRows> rows;
  std::vector<at::Tensor> parts;
  int64_t offset = 0;
  for (const Dtype dtype : {Dtype::q4_k, Dtype::q6_k, Dtype::bf16}) {
    const int64_t bytes = 16 * packed_bytes(dtype, 256);
    parts.push_back(random_bytes(bytes));
    rows.push_back({dtype, 16, 256, offset});
    offset += bytes;
  }
  const Linear layer = {.weight = at::cat(parts), .bias = at::randn({48}), .rows = rows};
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < rows.size(); ++i)
    values.push_back(unpack(parts[i], {{rows[i].dtype, 16, 256, 0}}, {}, at::kFloat));
  const Linear plain = {.weight = at::cat(values), .bias = layer.bias};
  const at::Tensor x = at::randn({5, 256});
  EXPECT_TRUE(at::equal(linear(x, layer), linear(x, plain)));
  EXPECT_TRUE(at::equal(linear_gelu_tanh(x, layer), linear_gelu_tanh(x, plain)));
  EXPECT_TRUE(at::equal(linear_few_rows(x, {&layer})[0], linear(x, plain)));
  EXPECT_FALSE(layer.is_fp8());
}

}  // namespace
}  // namespace sparsereel::models
