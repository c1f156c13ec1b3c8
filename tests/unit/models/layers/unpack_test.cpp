// Tests weights that are unpacked for each product: compares ggml's blocks with the Python package gguf
// (tests/parity/make_gguf.py), and 8-bit numbers with torch.
#include "models/layers/unpack.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "models/layers/linear.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {
namespace {

at::Tensor random_bytes(int64_t count) {
  at::Tensor bytes = at::randint(0, 256, {count}, at::kByte);
  // Changes bytes that could make an fp16 NaN or Inf.
  return bytes.masked_fill_(bytes.bitwise_and(0x7C).eq(0x7C), 0x33);
}

TEST(Unpack, MatchesTheGgufPackage) {
  const std::string folder = std::string(SPARSEREEL_TEST_DATA) + "/gguf/";
  const TensorFile packed(folder + "blocks.gguf"), golden(folder + "blocks.safetensors");
  EXPECT_EQ(packed.metadata().at("general.architecture"), "wan");
  EXPECT_EQ(packed.entries().size(), 15U);
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

TEST(Unpack, MatchesTorchForEveryByteOfEightBitNumbers) {
  const at::Tensor bytes = at::arange(256, at::kByte);
  const std::pair<Dtype, at::ScalarType> kinds[] = {
      {Dtype::f8_e4m3, at::kFloat8_e4m3fn}, {Dtype::f8_e5m2, at::kFloat8_e5m2}, {Dtype::i8, at::kChar}};
  for (const auto& [dtype, scalar] : kinds) {
    const at::Tensor expected = bytes.view(scalar).to(at::kFloat);
    const at::Tensor found = unpack(bytes, {{dtype, 1, 256, 0}}, {}, at::kFloat)[0];
    EXPECT_TRUE(at::allclose(found, expected, 0, 0, /*equal_nan=*/true)) << static_cast<int>(dtype);
  }
}

TEST(Unpack, KeepsUnpackedNumbersUnchanged) {
  const at::Tensor numbers = at::randn({3, 16});
  const std::pair<Dtype, at::ScalarType> kinds[] = {
      {Dtype::f32, at::kFloat}, {Dtype::f16, at::kHalf}, {Dtype::bf16, at::kBFloat16}};
  for (const auto& [dtype, scalar] : kinds) {
    const at::Tensor stored = numbers.to(scalar);
    const at::Tensor found = unpack(stored.view(-1).view(at::kByte), {{dtype, 3, 16, 0}}, {}, at::kFloat);
    EXPECT_TRUE(at::equal(found, stored.to(at::kFloat))) << static_cast<int>(dtype);
  }
}

TEST(Unpack, ScalesRowsInFp32AndRoundsOnce) {
  const at::Tensor bytes = at::randint(0, 256, {4 * 32}, at::kByte), scale = at::rand({4}) + 0.1;
  const at::Tensor found = unpack(bytes, {{Dtype::i8, 4, 32, 0}}, scale, at::kBFloat16);
  const at::Tensor expected = (bytes.view(at::kChar).view({4, 32}).to(at::kFloat) * scale.unsqueeze(1));
  EXPECT_TRUE(at::equal(found, expected.to(at::kBFloat16)));
}

LowRank random_delta(int64_t rows, int64_t columns, at::ScalarType dtype, double scale) {
  return {at::randn({rows, 4}).to(dtype), at::randn({4, columns}).to(dtype), scale};
}

at::Tensor product(const LowRank& delta) {
  return at::matmul(delta.up.to(at::kDouble), delta.down.to(at::kDouble)) * delta.scale;
}

/// The weight has more rows than are unpacked at a time. Its parts have different formats and different deltas (changes
/// by LoRAs).
TEST(Unpack, AddsDeltasInFp32AndRoundsTheSumOnce) {
  at::manual_seed(1);
  const int64_t columns = 256, rows = 700, bytes = rows * columns;
  std::vector<StoredRows> stored = {{Dtype::i8, rows, columns, 0}, {Dtype::i8, rows, columns, bytes}};
  const at::Tensor packed = at::randint(0, 256, {2 * bytes}, at::kByte), scale = at::rand({2 * rows}) * 0.01 + 0.001;
  const at::Tensor before = unpack(packed, stored, scale, at::kFloat).to(at::kDouble);
  stored[0].deltas = {random_delta(rows, columns, at::kFloat, 0.25), random_delta(rows, columns, at::kBFloat16, -2)};
  stored[1].deltas = {random_delta(rows, columns, at::kHalf, 0.01)};
  const at::Tensor added =
      at::cat({product(stored[0].deltas[0]) + product(stored[0].deltas[1]), product(stored[1].deltas[0])});
  const at::Tensor fp32 = unpack(packed, stored, scale, at::kFloat);
  EXPECT_LT((fp32 - before - added).abs().max().item<double>(), 1e-5);
  EXPECT_TRUE(unpack(packed, stored, scale, at::kBFloat16).equal(fp32.to(at::kBFloat16)));
  EXPECT_TRUE(unpack(packed, stored, scale, at::kHalf).equal(fp32.to(at::kHalf)));
}

TEST(Unpack, SplitsAnFp32DeltaIntoBf16OfThreeTimesTheRank) {
  const LowRank delta = random_delta(64, 96, at::kFloat, 0.7), split = in_bf16(delta);
  EXPECT_EQ(split.up.scalar_type(), at::kBFloat16);
  EXPECT_EQ(split.up.sizes(), at::IntArrayRef({64, 12}));
  EXPECT_EQ(split.down.sizes(), at::IntArrayRef({12, 96}));
  const at::Tensor most = at::matmul(delta.up.abs(), delta.down.abs()) * (0.7 * std::exp2(-15));
  EXPECT_TRUE(((product(split) - product(delta)).abs() <= most).all().item<bool>());
}

/// Several threads unpack a large matrix. They do not inherit inference mode from their caller, so they must set it.
TEST(Unpack, UnpacksALargeMatrixInInferenceMode) {
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

TEST(Unpack, RequiresWholeBlocks) {
  EXPECT_TRUE(can_unpack(Dtype::q4_k, 512));
  EXPECT_FALSE(can_unpack(Dtype::q4_k, 384));
  EXPECT_TRUE(can_unpack(Dtype::q8_0, 96));
  EXPECT_FALSE(can_unpack(Dtype::q8_0, 40));
  EXPECT_FALSE(can_unpack(Dtype::f8_e4m3, 12));
  EXPECT_FALSE(can_unpack(Dtype::i64, 256));
  EXPECT_EQ(packed_bytes(Dtype::q6_k, 512), 420);
  EXPECT_EQ(packed_bytes(Dtype::iq4_nl, 512), 288);
  EXPECT_EQ(packed_bytes(Dtype::iq4_xs, 512), 272);
}

/// The three parts of a fused layer are packed in different formats.
TEST(PackedLinear, MatchesTheUnpackedValuesOfMixedFormats) {
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
  Linear changed = layer, sum = plain;
  changed.rows[1].deltas = {random_delta(16, 256, at::kFloat, 0.5)};
  sum.weight = plain.weight.clone();
  sum.weight.narrow(0, 16, 16).add_(product(changed.rows[1].deltas[0]).to(at::kFloat));
  EXPECT_TRUE(at::allclose(linear(x, changed), linear(x, sum), 1e-5, 1e-4));
}

}  // namespace
}  // namespace sparsereel::models
