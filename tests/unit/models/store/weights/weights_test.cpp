// Tests that weights are read in the requested dtype, without a copy if possible, and that a single error lists all
// tensors that do not fit.
#include "models/store/weights/weights.h"

#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>

#include "models/layers/linear.h"
#include "models/store/checkpoint/moved_rows.h"
#include "models/store/weights/stoppable_work.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/models/store/weights/weight_file.h"

namespace sparsereel::models {
namespace {

using test::TemporaryFolder;
using test::throws_error;
using test::write_text;

class WeightDtypes : public ::testing::TestWithParam<std::tuple<at::ScalarType, at::ScalarType>> {};

TEST_P(WeightDtypes, ConvertsByCopyingAndAliasesEqualDtypes) {
  const auto [stored, wanted] = GetParam();
  const TemporaryFolder folder;
  const at::Tensor values = at::linspace(-3, 3, 1000).reshape({10, 100}).to(stored);
  write(folder.path(), {{"w", values}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, wanted);
  const at::Tensor read = weights.tensor("w", {10, 100});
  EXPECT_EQ(read.scalar_type(), wanted);
  EXPECT_TRUE(read.equal(values.to(wanted)));
  EXPECT_EQ(inside(read, component), stored == wanted);
  const at::Tensor wide = weights.read(parameter("w", {10, 100}, /*fp32=*/true));
  EXPECT_EQ(wide.scalar_type(), at::kFloat);
  EXPECT_TRUE(wide.equal(values.to(at::kFloat)));
  EXPECT_NO_THROW(weights.check_complete());
}

INSTANTIATE_TEST_SUITE_P(Weights, WeightDtypes,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kHalf, at::kBFloat16, at::kDouble),
                                            ::testing::Values(at::kFloat, at::kHalf, at::kBFloat16)));

TEST(Weights, AreReorderedAndNeverPacked) {
  const TemporaryFolder folder;
  const at::Tensor weight = at::arange(12, at::kFloat).view({4, 3}).to(at::kBFloat16);
  write(folder.path(), {{"w", weight}, {"small", weight.to(at::kFloat8_e4m3fn)}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kBFloat16);
  Parameter ordered = parameter("w", {4, 3});
  ordered.row_order = at::tensor({3, 0, 2, 1}, at::kLong);
  EXPECT_TRUE(weights.read(ordered).equal(weight.index_select(0, ordered.row_order)));
  std::vector<StoredRows> rows;
  at::Tensor scale;
  Parameter small = parameter("small", {4, 3});
  small.fp8 = true;
  small.rows = &rows;
  small.scale = &scale;
  EXPECT_TRUE(weights.read(small).equal(weight.to(at::kFloat8_e4m3fn).to(at::kBFloat16)));
  EXPECT_TRUE(rows.empty());
  EXPECT_FALSE(scale.defined());
}

TEST(Weights, OutliveTheComponent) {
  const TemporaryFolder folder;
  write(folder.path(), {{"w", at::full({4}, 7.0)}});
  at::Tensor read;
  {
    const Component component = open_component(folder.path());
    read = WeightReader(component, at::kCPU, at::kFloat).tensor("w", {4});
    EXPECT_TRUE(inside(read, component));
  }
  EXPECT_TRUE(read.equal(at::full({4}, 7.0)));
}

TEST(Weights, AreCopiedIfMisaligned) {
  const TemporaryFolder folder;
  std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  if (header.size() % 4 == 0) header += ' ';
  const uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  const std::array<float, 2> values = {1.5F, -2};
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values.data()), sizeof values);
  write_text(folder / "model.safetensors", bytes);
  const Component component = open_component(folder.path());
  const at::Tensor read = WeightReader(component, at::kCPU, at::kFloat).tensor("w", {2});
  EXPECT_FALSE(inside(read, component));
  EXPECT_EQ(read[0].item<float>(), 1.5F);
  EXPECT_EQ(read[1].item<float>(), -2);
}

TEST(Weights, FillTheParametersOfALayer) {
  const TemporaryFolder folder;
  const at::Tensor q = at::randn({2, 3}), k = at::randn({2, 3}), kernel = at::randn({4, 3, 2, 2});
  write(folder.path(), {{"q.weight", q}, {"k.weight", k}, {"conv.weight", kernel}, {"conv.bias", at::zeros({4})}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  Linear packed, matrix;
  packed.packed_weights(weights.loads(), {"q", "k"}, 2, 3, /*has_bias=*/false);
  matrix.weights(weights.loads(), "conv", 4, 12, /*has_bias=*/true, {4, 3, 2, 2});
  EXPECT_NO_THROW(weights.check_complete());
  EXPECT_TRUE(packed.weight.equal(at::cat({q, k})));
  EXPECT_FALSE(packed.bias.defined());
  EXPECT_TRUE(matrix.weight.equal(kernel.view({4, 12})));
  EXPECT_EQ(matrix.bias.sizes(), at::IntArrayRef({4}));
  EXPECT_TRUE(weights.contains("conv.bias"));
  EXPECT_FALSE(weights.contains("q.bias"));
}

TEST(Weights, StopLoadingBetweenTensorsOnRequest) {
  const TemporaryFolder folder;
  write(folder.path(), {{"a", at::ones({2})}, {"b", at::ones({2})}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  at::Tensor a, b;
  std::atomic<bool> stop = false;
  {
    const StoppableWork stoppable(stop);
    weights.load(a, parameter("a", {2}));
    stop = true;
    EXPECT_THROW(weights.load(b, parameter("b", {2})), WorkStopped);
    std::async(std::launch::async, [&] { weights.load(b, parameter("b", {2})); }).get();
  }
  EXPECT_TRUE(b.equal(a));
  EXPECT_NO_THROW(weights.load(b, parameter("b", {2})));
}

TEST(Weights, AreStandInsIfAPartIsMissing) {
  const TemporaryFolder folder;
  write(folder.path(), {{"q.weight", at::ones({2, 3})}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  Linear packed;
  packed.packed_weights(weights.loads(), {"q", "k", "v"}, 2, 3, /*has_bias=*/false);
  EXPECT_EQ(packed.weight.sizes(), at::IntArrayRef({6, 3}));
  EXPECT_TRUE(is_stand_in(packed.weight));
  EXPECT_TRUE(throws_error([&] { weights.check_complete(); }, {"2 missing", "k.weight", "v.weight"}));
}

TEST(Weights, ListMissingUnexpectedAndMisshapedTensorsInOneError) {
  const TemporaryFolder folder;
  write(folder.path(), {{"good", at::ones({2})},
                        {"blocks.0.q.weight", at::ones({1})},
                        {"blocks.0.q.bias", at::ones({2})},
                        {"blocks.1.q.weight", at::ones({1})},
                        {"out.bias", at::ones({1})},
                        {"bad", at::ones({2, 3})},
                        {"eight_bit", at::ones({2}, at::kByte)},
                        {"encoder.w", at::ones({1})}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  weights.ignore_prefix("encoder.");
  weights.tensor("good", {2});
  weights.tensor("blocks.0.q.weight", {1});
  weights.tensor("out.bias", {1});
  EXPECT_EQ(weights.tensor("bad", {3, 2}).sizes(), at::IntArrayRef({3, 2})) << "a stand-in of the wanted shape";
  EXPECT_EQ(weights.tensor("absent", {5, 6}).sizes(), at::IntArrayRef({5, 6}));
  weights.tensor("absent", {5, 6});
  weights.tensor("eight_bit", {2});
  EXPECT_TRUE(
      throws_error([&] { weights.check_complete(); },
                   {folder.path().string(), "config.json", "CogVideoXTransformer3DModel",
                    "1 missing: \"absent\" [5, 6]", "2 unexpected: \"blocks.0.q.bias\" [2], \"blocks.1.q.weight\" [1]",
                    "2 misshaped: \"bad\" is [2, 3], expected [3, 2], \"eight_bit\" is stored as U8"}));
}

/// Unrelated tensors are, for example, markers and counters of training programs.
TEST(Weights, OmitAndNameUnrelatedTensors) {
  const TemporaryFolder folder;
  write(folder.path(), {{"blocks.0.q.weight", at::ones({2})},
                        {"blocks.0.q._extra_state", at::ones({2})},
                        {"step", at::ones({1})},
                        {"marker", at::ones({0})},
                        {"ema.weight", at::ones({3})}});
  Component component = open_component(folder.path());
  const auto left_out = component.left_out = std::make_shared<std::vector<std::string>>();
  WeightReader weights(component, at::kCPU, at::kFloat);
  weights.tensor("blocks.0.q.weight", {2});
  EXPECT_NO_THROW(weights.check_complete());
  EXPECT_EQ(*left_out, (std::vector<std::string>{"\"blocks.0.q._extra_state\" [2]", "\"ema.weight\" [3]",
                                                 "\"marker\" [0]", "\"step\" [1]"}));
}

/// The error gives the file's name of an unknown tensor, because the model has no name for it.
TEST(Weights, ReportUnexpectedTensorsInRenamedFiles) {
  const TemporaryFolder folder;
  write(folder.path(), {{"model.theirs.0.q.weight", at::ones({2})}, {"model.theirs.0.z.weight", at::ones({1})}});
  Component component = open_component(folder.path());
  const NameMap names({std::pair<std::string, std::string>("ours.*.q", "theirs.*.q")});
  component.prefix = "model.";
  component.names = &names;
  component.tensors = {{"ours.0.q.weight", component.tensors.at("model.theirs.0.q.weight")},
                       {"theirs.0.z.weight", component.tensors.at("model.theirs.0.z.weight")}};
  WeightReader weights(component, at::kCPU, at::kFloat);
  weights.tensor("ours.0.q.weight", {2});
  EXPECT_TRUE(throws_error([&] { weights.check_complete(); }, {"1 unexpected: \"model.theirs.0.z.weight\" [1]"}));
}

TEST(Weights, AreReadInOrderFromStridedTensors) {
  const TemporaryFolder folder;
  const at::Tensor across = at::randn({4, 3, 2});
  const at::Tensor stored = across.permute({2, 0, 1}).contiguous();
  write(folder.path(), {{"a", stored}, {"b", stored.to(at::kBFloat16)}, {"rows", stored}});
  Component component = open_component(folder.path());
  for (const char* name : {"a", "b", "rows"}) {
    auto entry = std::make_shared<TensorEntry>(*component.tensors.at(name).second);
    entry->shape = {4, 3, 2};
    entry->strides = {3, 1, 12};
    component.tensors.at(name).second = component.parts.emplace_back(std::move(entry)).get();
  }
  const auto half = part_of(*component.tensors.at("rows").second, {.part = 1, .parts = 2, .halves_swapped = true});
  ASSERT_TRUE(half);
  component.tensors.at("rows").second = component.parts.emplace_back(std::make_shared<TensorEntry>(*half)).get();
  WeightReader weights(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(weights.tensor("a", {4, 3, 2}).equal(across));
  EXPECT_TRUE(weights.tensor("a", {4, 3, 2}).is_contiguous());
  EXPECT_TRUE(weights.tensor("b", {4, 3, 2}).equal(across.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(weights.tensor("rows", {2, 3, 2}).equal(at::cat({across.narrow(0, 3, 1), across.narrow(0, 2, 1)})));
  at::Tensor both;
  weights.load(both, {.names = {"a", "a"}, .stored = {4, 3, 2}, .shape = {8, 6}});
  EXPECT_TRUE(both.equal(at::cat({across, across}).view({8, 6})));
}

TEST(Weights, AreJoinedFromRowsThatTakeTurns) {
  const TemporaryFolder folder;
  const at::Tensor heads = at::randn({2, 3, 4, 5});  // [heads, joined layers, rows per head, columns]
  write(folder.path(), {{"a", heads.view({24, 5})}, {"b", heads.view({24, 5}).to(at::kBFloat16)}});
  Component component = open_component(folder.path());
  for (const char* name : {"a", "b"}) {
    const auto part = part_of(*component.tensors.at(name).second, {.part = 1, .parts = 3, .turns_like = "norm"}, 4);
    ASSERT_TRUE(part);
    EXPECT_ANY_THROW(component.files[0]->data(*part)) << "the rows do not lie together";
    component.tensors.at(name).second = component.parts.emplace_back(std::make_shared<TensorEntry>(*part)).get();
  }
  const at::Tensor second = heads.select(1, 1).reshape({8, 5});
  WeightReader weights(component, at::kCPU, at::kFloat);
  EXPECT_TRUE(weights.tensor("a", {8, 5}).equal(second));
  EXPECT_TRUE(weights.tensor("b", {8, 5}).equal(second.to(at::kBFloat16).to(at::kFloat)));
  at::Tensor both;
  weights.load(both, {.names = {"a", "a"}, .stored = {8, 5}, .shape = {16, 5}});
  EXPECT_TRUE(both.equal(at::cat({second, second})));
}

TEST(Weights, AreRefusedIfTheFileWasTruncatedMeanwhile) {
  const TemporaryFolder folder;
  write(folder.path(), {{"a", at::ones({1 << 16})}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  std::filesystem::resize_file(folder / "model.safetensors", 1 << 10);
  EXPECT_EQ(weights.tensor("a", {1 << 16}).sum().item<float>() < 1 << 16, true);
  EXPECT_TRUE(throws_error([&] { weights.check_complete(); }, {"model.safetensors", "became shorter"}));
}

TEST(Weights, AllowReshapingSomeTensors) {
  const TemporaryFolder folder;
  const at::Tensor values = at::randn({4, 6});
  write(folder.path(), {{"a", values}, {"b", values}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  at::Tensor read;
  weights.load(read, {.names = {"a"}, .stored = {2, 2, 6}, .shape = {2, 12}, .reshaped = true});
  EXPECT_TRUE(read.equal(values.view({2, 12})));
  weights.load(read, {.names = {"b"}, .stored = {2, 2, 5}, .shape = {20}, .reshaped = true});
  EXPECT_TRUE(is_stand_in(read));
  EXPECT_TRUE(throws_error([&] { weights.check_complete(); }, {"1 misshaped: \"b\" is [4, 6], expected [2, 2, 5]"}));
}

TEST(Weights, RestoreTheOrderOfSwappedHalves) {
  const TemporaryFolder folder;
  const at::Tensor first = at::randn({2, 3}), second = at::randn({2, 3});
  write(folder.path(), {{"a", at::cat({second, first})}, {"b", at::cat({second, first}).to(at::kBFloat16)}});
  Component component = open_component(folder.path());
  for (const char* name : {"a", "b"}) {
    auto entry = std::make_shared<TensorEntry>(*component.tensors.at(name).second);
    entry->halves_swapped = true;
    component.tensors.at(name).second = component.parts.emplace_back(std::move(entry)).get();
  }
  WeightReader weights(component, at::kCPU, at::kFloat);
  const at::Tensor expected = at::cat({first, second});
  EXPECT_TRUE(weights.tensor("a", {4, 3}).equal(expected));
  EXPECT_TRUE(weights.tensor("b", {4, 3}).equal(expected.to(at::kBFloat16).to(at::kFloat)));
  at::Tensor both;
  weights.load(both, {.names = {"a", "a"}, .stored = {4, 3}, .shape = {8, 3}});
  EXPECT_TRUE(both.equal(at::cat({expected, expected})));
}

TEST(Weights, NameTensorsLikeTheFileInErrors) {
  const TemporaryFolder folder;
  write(folder.path(), {{"model.theirs.weight", at::ones({2})}, {"model.theirs.bias", at::ones({1})}});
  Component component = open_component(folder.path());
  const NameMap names({{"ours", "theirs"}, {"absent", "away"}});
  component.prefix = "model.";
  component.names = &names;
  component.tensors = {{"ours.weight", component.tensors.at("model.theirs.weight")},
                       {"ours.bias", component.tensors.at("model.theirs.bias")}};
  WeightReader weights(component, at::kCPU, at::kFloat);
  weights.tensor("ours.weight", {3});
  weights.tensor("absent.bias", {1});
  EXPECT_TRUE(throws_error(
      [&] { weights.check_complete(); },
      {"\"model.theirs.weight\" is [2]", "missing: \"model.away.bias\"", "unexpected: \"model.theirs.bias\" [1]"}));
}

TEST(Weights, ShortenLongListsInErrors) {
  const TemporaryFolder folder;
  write(folder.path(), {{"w", at::ones({1})}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  weights.tensor("w", {1});
  for (int i = 0; i < 500; ++i) weights.tensor("absent." + std::to_string(i), {1});
  EXPECT_TRUE(throws_error([&] { weights.check_complete(); }, {"500 missing", "\"absent.19\" [1], ..."}));
}

TEST(Weights, TakeNoMemoryForHugeStandIns) {
  const TemporaryFolder folder;
  write(folder.path(), {{"w", at::ones({1})}});
  const Component component = open_component(folder.path());
  WeightReader weights(component, at::kCPU, at::kFloat);
  const at::Tensor stand_in = weights.tensor("w", {int64_t{1} << 30, int64_t{1} << 20});
  EXPECT_EQ(stand_in.storage().nbytes(), sizeof(float));
}

TEST(Weights, AreReadableInTheTestPipeline) {
  const auto folder = Checkpoint::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline");
  for (const char* name : {"transformer", "vae", "text_encoder"}) {
    const Component component = folder.component(name);
    WeightReader weights(component, at::kCPU, at::kFloat);
    for (const auto& [tensor, place] : component.tensors)
      EXPECT_TRUE(at::isfinite(weights.tensor(tensor, place.second->shape)).all().item<bool>()) << tensor;
    EXPECT_NO_THROW(weights.check_complete());
  }
}

TEST(Weights, TakeNoMemoryForStandInsInAnyLayout) {
  const TemporaryFolder folder;
  write(folder.path(), {{"a", at::ones({4, 2, 3, 3})}});
  const Component component = open_component(folder.path());
  WeightReader reader(component, at::kCPU, at::kFloat);
  const std::vector<int64_t> huge = {int64_t{1} << 20, int64_t{1} << 20, 3, 3};  // 36 TiB in fp32
  const at::Tensor missing = reader.tensor("b", huge), there = reader.tensor("a", {4, 2, 3, 3});
  EXPECT_TRUE(is_stand_in(missing));
  EXPECT_EQ(laid_out(missing, at::MemoryFormat::ChannelsLast).sizes(), at::IntArrayRef(huge));
  EXPECT_FALSE(is_stand_in(there));
  EXPECT_TRUE(laid_out(there, at::MemoryFormat::ChannelsLast).is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Weights, CheckOnlyNamesAndShapesOnTheMetaDevice) {
  const TemporaryFolder folder;
  write(folder.path(), {{"a", at::ones({2, 3}, at::kHalf)}});
  const Component component = open_component(folder.path());
  WeightReader reader(component, at::kMeta, at::kFloat);
  const at::Tensor tensor = reader.tensor("a", {2, 3});
  EXPECT_TRUE(tensor.is_meta());
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  EXPECT_NO_THROW(reader.check_complete());
  reader.tensor("b", {2});
  EXPECT_TRUE(throws_error([&] { reader.check_complete(); }, {"missing", "b"}));
}

/// The Python package gguf wrote the file (tests/parity/make_gguf.py).
TEST(Weights, StayPackedForLayersThatUnpackThem) {
  const std::filesystem::path folder = std::filesystem::path(SPARSEREEL_TEST_DATA) / "gguf";
  Component component;
  component.files.push_back(std::make_shared<TensorFile>(folder / "blocks.gguf"));
  for (const TensorEntry& entry : component.files[0]->entries()) component.tensors[entry.name] = {0, &entry};
  const TensorFile golden(folder / "blocks.safetensors");
  const auto expected = [&](const char* name) {
    const auto* numbers = reinterpret_cast<const float*>(golden.data(*golden.find(name)).data());
    return at::from_blob(const_cast<float*>(numbers), {2, 256}, at::kFloat).clone();
  };
  const at::Tensor both = at::cat({expected("Q4_K"), expected("Q6_K")});
  Linear layer;
  const Parameter parameter = {.names = {"Q4_K", "Q6_K"},
                               .stored = {2, 256},
                               .shape = {4, 256},
                               .fp8 = true,
                               .scale = &layer.scale,
                               .rows = &layer.rows};
  WeightReader reader(component, at::kCPU, at::kFloat);
  reader.load(layer.weight, parameter);
  EXPECT_EQ(layer.weight.nbytes(), 2U * 144 + 2U * 210 + 12);  // 12 bytes pad the parts to multiples of 16
  EXPECT_TRUE(layer.in(at::kFloat).weight.equal(both));
  EXPECT_TRUE(reader.tensor("Q4_K", {2, 256}).equal(expected("Q4_K")));  // tensor() expands the weight at once

  Linear eight_bits;
  Parameter quantized = parameter;
  quantized.scale = &eight_bits.scale, quantized.rows = &eight_bits.rows;
  WeightReader(component, at::kCPU, {at::kFloat, /*in_fp8=*/true}).load(eight_bits.weight, quantized);
  EXPECT_TRUE(eight_bits.is_fp8());
  EXPECT_TRUE(eight_bits.weight.view(at::kByte).equal(quantize_rows(both).values.view(at::kByte)));
}

TEST(PackedWeights, MatchTheGgufPackage) {
  const std::string folder = std::string(SPARSEREEL_TEST_DATA) + "/gguf/";
  const TensorFile golden(folder + "blocks.safetensors");
  Component component;
  component.files.push_back(std::make_shared<TensorFile>(folder + "blocks.gguf"));
  for (const TensorEntry& entry : component.files[0]->entries()) component.tensors[entry.name] = {0, &entry};
  EXPECT_EQ(stored_dtype(component), at::kBFloat16) << "not that of a bias beside them";
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    WeightReader reader(component, at::kCPU, dtype), meta(component, at::kMeta, dtype);
    for (const TensorEntry& entry : golden.entries()) {
      const at::Tensor expected =
          at::empty(entry.shape, at::kFloat)
              .copy_(at::from_blob(const_cast<std::byte*>(golden.data(entry).data()), entry.shape, at::kFloat));
      const at::Tensor weight = reader.tensor(entry.name, entry.shape);
      EXPECT_TRUE(weight.equal(expected.to(dtype))) << entry.name;
      EXPECT_EQ(meta.tensor(entry.name, entry.shape).sizes(), at::IntArrayRef(entry.shape));
    }
    reader.check_complete();
  }
}

}  // namespace
}  // namespace sparsereel::models
