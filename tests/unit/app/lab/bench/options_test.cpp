// Tests how `bench attention` reads shapes and lists, and which options it refuses.
#include "app/lab/bench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/lab/bench/contenders.h"
#include "hilbert/error.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

AttentionOptions with_shape(const std::string& shape) {
  AttentionOptions options;
  options.shapes = {shape};
  return options;
}

/// Returns the text of the error that the options cause. Fails if there is no error, if its kind is not bad input, or
/// if it names no remedy.
std::string refusal(const AttentionOptions& options) {
  try {
    make_plan(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  ADD_FAILURE() << "was accepted";
  return {};
}

/// Describes each sparse row of the plan, such as "0.5" (the topk) or "0.5 means of 16 by error".
std::vector<std::string> names(const AttentionPlan& plan) {
  std::vector<std::string> names;
  for (const Combination& each : plan.grid.combinations) names.push_back(selection_name(fields_of(each)));
  return names;
}

TEST(Shapes, AreSeparatedBySemicolonsAndSpaces) {
  const std::vector<Shape> shapes = parse_shapes("1,4,2336,64;2,30,17776,64 1,1,1,16; ");
  ASSERT_EQ(shapes.size(), 3U);
  EXPECT_EQ(shapes[0].text(), "1,4,2336,64");
  EXPECT_EQ(shapes[1].text(), "2,30,17776,64");
  EXPECT_EQ(shapes[2].text(), "1,1,1,16");
}

TEST(Shapes, RefuseAnythingButFourSizes) {
  for (const char* text : {"", ";", "1,2,3", "1,2,3,4,5", "1,2,3,0", "1,2,-3,4", "1,2,3,x", "1,2,3,4x", "1,,3,4",
                           "1.5,2,3,4", "1,2,3,99999999999999999999", "1,2,3,1073741825"})
    EXPECT_TRUE(test::throws_error([&] { parse_shapes(text); }, {"--shape"})) << text;
  EXPECT_TRUE(test::throws_error([] { parse_shapes("1,2,3,1073741825"); }, {"from 1 to 1073741824"}));
}

TEST(Shapes, MayHaveFewerHeadsOfKeysAndValues) {
  const std::vector<Shape> shapes = parse_shapes("1,32/8,24576,128;1,4/4,100,64;2,6/1,100,64");
  EXPECT_EQ(shapes[0].text(), "1,32/8,24576,128");
  EXPECT_EQ(shapes[0].kv_heads, 8);
  EXPECT_DOUBLE_EQ(shapes[0].elements(), 4 * shapes[0].key_elements());
  EXPECT_EQ(shapes[1].text(), "1,4,100,64");
  EXPECT_EQ(shapes[2].heads_of_keys(), 1);
  for (const char* text : {"1,4/3,100,64", "1,4/0,100,64", "1,4/,100,64", "1,4/x,100,64", "1,4/-1,100,64",
                           "1,4/2/2,100,64", "1,2/4,100,64"})
    EXPECT_TRUE(test::throws_error([&] { parse_shapes(text); }, {text, "heads of k and v for"})) << text;
  for (const char* text : {"1/1,4,100,64", "1,/2,100,64", "1,4,100/50,64", "1,4/2,100"})
    EXPECT_TRUE(test::throws_error([&] { parse_shapes(text); }, {text, "not four whole numbers"})) << text;
}

TEST(Shapes, HalveTheOperationsUnderACausalMask) {
  const Shape shape{.batch = 2, .heads = 30, .tokens = 17776, .head_dim = 64};
  const Workload dense{.name = {}, .shape = shape, .text_tokens = 0, .causal = false};
  const Workload causal{.name = {}, .shape = shape, .text_tokens = 0, .causal = true};
  EXPECT_DOUBLE_EQ(dense.operations(), 4.0 * 2 * 30 * 17776 * 17776 * 64);
  EXPECT_DOUBLE_EQ(causal.operations() * 2, dense.operations());
}

TEST(Workloads, ListThePublishedModels) {
  EXPECT_EQ(find_workload("cogvideox-2b").shape.text(), "2,30,17776,64");
  EXPECT_EQ(find_workload("cogvideox-5b").text_tokens, 226);
  EXPECT_EQ(find_workload("mochi").shape.text(), "1,24,44776,128");
  EXPECT_TRUE(find_workload("llama3.1-128k").causal);
  EXPECT_EQ(find_workload("llama3.1-24k").shape.text(), "1,32/8,24576,128");
  EXPECT_EQ(known_workloads().size(), 10U);
  try {
    find_workload("sora");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("wan-14b"));
  }
}

TEST(Plan, HasTheDefaults) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.lists["dropped"] = "none";
  const AttentionPlan plan = make_plan(options);
  EXPECT_THAT(plan.modes, ElementsAre(Mode::full, Mode::quantized, Mode::sparse));
  EXPECT_THAT(names(plan), ElementsAre("0.5", "0.3", "0.1"));
  EXPECT_EQ(plan.grid.combinations[0].policy.selection_rows, attention::Policy{}.selection_rows);
}

TEST(Plan, TakesWorkloadsThenShapes) {
  AttentionOptions options = with_shape("1,2,300,64");
  options.workloads = {"flux, mochi", "sd3.5"};
  const AttentionPlan plan = make_plan(options);
  ASSERT_EQ(plan.workloads.size(), 4U);
  EXPECT_EQ(plan.workloads[1].name, "mochi");
  EXPECT_EQ(plan.workloads[3].shape.text(), "1,2,300,64");
}

TEST(Plan, ReplacesTheTextTokensOfAModelByTheOption) {
  AttentionOptions options;
  options.workloads = {"mochi"};
  EXPECT_EQ(make_plan(options).workloads[0].text_tokens, 0);
  options.text_tokens = "7";
  EXPECT_EQ(make_plan(options).workloads[0].text_tokens, 7);
  options.text_tokens = "model";
  EXPECT_EQ(make_plan(options).workloads[0].text_tokens, 256);
  options.shapes = {"1,2,300,64"};
  EXPECT_THAT(refusal(options), HasSubstr("--text-tokens model: no model belongs to --shape 1,2,300,64"));
}

TEST(Plan, DropsAModeGivenTwice) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.modes = "sparse, full,sparse";
  EXPECT_THAT(make_plan(options).modes, ElementsAre(Mode::sparse, Mode::full));
}

TEST(TableFormat, IsGuessedFromTheOutput) {
  EXPECT_EQ(parse_format({}), Format::markdown);
  EXPECT_EQ(parse_format({.output = "a.csv"}), Format::csv);
  EXPECT_EQ(parse_format({.output = "a.json"}), Format::json);
  EXPECT_EQ(parse_format({.output = "a.txt"}), Format::markdown);
  EXPECT_EQ(parse_format({.format = "md", .output = "a.json"}), Format::markdown);
  EXPECT_EQ(parse_format({.format = "md", .output = "a.mp4"}), Format::markdown);
  EXPECT_TRUE(test::throws_error([] { parse_format({.output = "a.mp4"}); }, {"--output a.mp4"}));
  EXPECT_TRUE(test::throws_error([] { parse_format({.format = "xml"}); }, {"--format xml"}));
}

TEST(Plan, RefusesBadValuesByName) {
  EXPECT_THAT(refusal({}), HasSubstr("no shape"));
  const auto changed = [](auto&& change) {
    AttentionOptions options = with_shape("1,4,256,64");
    change(options);
    return refusal(options);
  };
  EXPECT_THAT(changed([](auto& o) { o.modes = "full,check"; }), HasSubstr("check"));
  EXPECT_THAT(changed([](auto& o) { o.modes = ""; }), HasSubstr("--modes"));
  EXPECT_THAT(changed([](auto& o) { o.lists["topk"] = "0.5,0"; }), HasSubstr("--topk 0 is out of range"));
  EXPECT_THAT(changed([](auto& o) { o.lists["topk"] = "nan"; }), HasSubstr("--topk nan"));
  EXPECT_THAT(changed([](auto& o) { o.text_tokens = "257"; }), HasSubstr("256 tokens"));
  EXPECT_THAT(changed([](auto& o) { o.text_tokens = "many"; }), HasSubstr("--text-tokens many"));
  EXPECT_THAT(changed([](auto& o) { o.selection_rows = "100"; }),
              HasSubstr("--selection-rows 100: one of 64, 128, 192"));
  EXPECT_THAT(changed([](auto& o) { o.data = "zeros"; }), HasSubstr("--data zeros"));
  EXPECT_THAT(changed([](auto& o) { o.repetitions = 0; }), HasSubstr("--repetitions 0"));
  EXPECT_THAT(changed([](auto& o) { o.warmup = -1; }), HasSubstr("--warmup -1"));
  EXPECT_THAT(changed([](auto& o) { o.accuracy_rows = -1; }), HasSubstr("--accuracy-rows -1"));
  EXPECT_THAT(changed([](auto& o) { o.seed = "-1"; }), HasSubstr("--seed -1"));
  EXPECT_THAT(changed([](auto& o) { o.seed = "18446744073709551616"; }), HasSubstr("--seed 18446744073709551616"));
  AttentionOptions largest = with_shape("1,4,256,64");
  largest.seed = "18446744073709551615";
  EXPECT_EQ(make_plan(largest).seed, 18446744073709551615U);
}

TEST(Plan, WarnsOfSelectionOptionsWithoutTheSparseMode) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.modes = "full,quantized";
  EXPECT_THAT(make_plan(options).warnings, ElementsAre());
  options.lists["dropped"] = "mean";
  EXPECT_THAT(make_plan(options).warnings, ElementsAre("--dropped has no effect with --modes full,quantized"));
  EXPECT_TRUE(make_plan(options).grid.combinations.empty());
  options.lists = {};
  options.pv_threshold = "20";
  EXPECT_THAT(make_plan(options).warnings, ElementsAre("--pv-threshold has no effect with --modes full,quantized"));
}

TEST(Selections, CombineDroppedBlocksMeansAndRankings) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.lists = {{"topk", "0.5,0.2"}, {"dropped", "none,mean"}, {"select", "mass,error"}, {"cell", "32"}};
  EXPECT_THAT(names(make_plan(options)), ElementsAre("0.5", "0.2", "0.5 means of 32 by mass", "0.2 means of 32 by mass",
                                                     "0.5 means of 32 by error", "0.2 means of 32 by error"));
  EXPECT_EQ(make_plan(options).grid.combinations[0].policy.ranking, attention::Ranking::mass);
  EXPECT_EQ(make_plan(options).grid.combinations[0].policy.dropped, attention::Dropped::none);
}

TEST(Selections, RankByErrorWithMeansAndByMassWithoutUnlessTheOptionSaysOtherwise) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.lists = {{"topk", "0.5"}, {"dropped", "mean,none"}, {"cell", "16,64"}};
  EXPECT_THAT(names(make_plan(options)), ElementsAre("0.5 means of 16 by error", "0.5 means of 64 by error", "0.5"));
}

TEST(Selections, UseMeansWithAnErrorBound) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.lists = {{"error", "0.02,0.05"}, {"cell", "16"}};
  EXPECT_THAT(names(make_plan(options)),
              ElementsAre("error 0.02 means of 16 by error", "error 0.05 means of 16 by error"));
  EXPECT_EQ(make_plan(options).grid.combinations[1].policy.defaults.selection, attention::Selection::error);
  options.lists = {{"topk", "0.5"}, {"dropped", "mean"}, {"select", "error,mass"}, {"cell", "16"}};
  EXPECT_THAT(names(make_plan(options)), ElementsAre("0.5 means of 16 by error", "0.5 means of 16 by mass"));
}

TEST(Selections, MakeOneRowForEachKind) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.lists = {{"topk", "0.15"},        {"cdf", "0.9"},      {"error", "0.1"},
                   {"block_error", "0.01"}, {"dropped", "mean"}, {"cell", "16"}};
  EXPECT_THAT(names(make_plan(options)),
              ElementsAre("0.15 means of 16 by error", "cdf 0.9 means of 16 by error", "error 0.1 means of 16 by error",
                          "block error 0.01 means of 16 by error"));
  options.lists = {{"block_error", "0.01"}, {"cell", "16"}};
  EXPECT_THAT(names(make_plan(options)), ElementsAre("block error 0.01 means of 16 by error"));
}

TEST(Selections, LeaveOutContradictoryCombinations) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.lists = {{"topk", "0.5"}, {"dropped", "none,mean"}, {"select", "error"}, {"cell", "16"}};
  const AttentionPlan plan = make_plan(options);
  EXPECT_THAT(names(plan), ElementsAre("0.5 means of 16 by error"));
  EXPECT_THAT(plan.grid.left_out, ElementsAre("--dropped none and --select error exclude each other"));
}

TEST(Selections, RefuseListsThatLeaveNoRow) {
  const auto refused = [](const Lists& given) {
    AttentionOptions options = with_shape("1,4,256,64");
    options.lists = given;
    return refusal(options);
  };
  EXPECT_THAT(refused({{"dropped", "none"}, {"select", "error"}}),
              HasSubstr("--dropped none and --select error exclude each other"));
  EXPECT_THAT(refused({{"error", "0.1"}, {"select", "mass"}}), HasSubstr("--select mass and --error"));
  EXPECT_THAT(refused({{"topk", "0.5"}, {"error", "0.1"}, {"dropped", "none"}}),
              HasSubstr("--dropped none and --error"));
  EXPECT_THAT(refused({{"block_error", "0.1"}, {"select", "mass"}}), HasSubstr("--select mass and --block-error"));
  EXPECT_THAT(refused({{"dropped", "mean,median"}}), HasSubstr("--dropped median: one of mean, none"));
  EXPECT_THAT(refused({{"dropped", "mean"}, {"cell", "48"}}), HasSubstr("--cell 48"));
  EXPECT_THAT(refused({{"error", "0"}}), HasSubstr("--error 0 is out of range"));
  EXPECT_THAT(refused({{"error", "0.1,inf"}}), HasSubstr("--error inf"));
}

TEST(Selections, CompareBitsOfArithmetic) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.device = "cpu";
  options.lists = {{"topk", "0.5,0.3"}, {"arithmetic", "8,16"}};
  const AttentionPlan plan = make_plan(options);
  EXPECT_THAT(names(plan), ElementsAre("0.5 means of 16 by error", "0.3 means of 16 by error",
                                       "0.5 means of 16 by error", "0.3 means of 16 by error"));
  EXPECT_EQ(plan.grid.combinations[0].policy.arithmetic, 8);
  EXPECT_EQ(plan.grid.combinations[2].policy.arithmetic, 16);
  EXPECT_THAT(plan.warnings, ElementsAre("--arithmetic 8,16 has no effect on a CPU, which computes in fp32"));
  options.lists["arithmetic"] = "32";
  EXPECT_THAT(refusal(options), HasSubstr("--arithmetic 32"));
  options.lists["arithmetic"] = "16";
  options.modes = "quantized";
  EXPECT_THAT(make_plan(options).warnings, Contains("--arithmetic has no effect with --modes quantized"));
}

TEST(Selections, WarnOfCellsWithoutMeans) {
  AttentionOptions options = with_shape("1,4,256,64");
  options.lists = {{"dropped", "none"}, {"cell", "32"}};
  EXPECT_THAT(make_plan(options).warnings, ElementsAre("--cell 32 has no effect without means for dropped blocks"));
}

TEST(HardwareLimits, AreFoundByTheNameThatTheDriverReports) {
  EXPECT_EQ(hardware_limit("NVIDIA H200")->bits8, 1979);
  EXPECT_EQ(hardware_limit("NVIDIA H100 80GB HBM3")->bits16, 989);
  EXPECT_EQ(hardware_limit("NVIDIA H100 PCIe")->bits16, 756);
  EXPECT_EQ(hardware_limit("NVIDIA GeForce RTX 4090")->bits8, 660);
  EXPECT_FALSE(hardware_limit("NVIDIA L40").has_value());
  EXPECT_FALSE(hardware_limit("AMD EPYC").has_value());
}

}  // namespace
}  // namespace sparsereel::app::bench
