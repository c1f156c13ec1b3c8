// Tests that reading a written profile gives the same profile, and that errors about wrong profiles name file, line and
// key.
#include "attention/policies/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hilbert/error.h"

namespace sparsereel::attention {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Profile example() {
  Profile profile;
  profile.model = "a \"model\": #1";
  profile.model_sha256 = std::string(64, 'a');
  profile.made_with = {.width = 256,
                       .height = 128,
                       .frames = 33,
                       .steps = 25,
                       .token_order = "hilbert",
                       .device = "cpu",
                       .dtype = "fp32"};
  profile.bounds = {.l1 = 0.05, .l2 = 0.055};
  profile.error = 0.0412;
  profile.sparsity = 0.5;
  profile.quality = {.psnr = 24.31, .ssim = 0.9123, .speedup = 1.25};
  profile.untuned_sparsity = 0.4733;
  profile.untuned = {.psnr = 19.02, .ssim = 0.8};
  profile.dropped = Dropped::mean;
  profile.ranking = Ranking::error;
  profile.cell = 32;
  profile.selection_rows = 128;
  profile.dense = {.steps = 3, .layers = 1};
  HeadPolicy topk, cdf, error, block_error, dense;
  topk.selection = Selection::topk;
  topk.topk = 0.35;
  topk.similarity = -0.1;
  topk.pv_threshold = 50;
  cdf.selection = Selection::cdf;
  cdf.cdf = 0.955;
  cdf.similarity = 0.35;
  cdf.pv_threshold = 2.5;
  error.selection = Selection::error;
  error.error = 1e-7;  // so small that rounding to a few decimals would make it zero
  block_error.selection = Selection::block_error;
  block_error.block_error = 0.0045;
  dense.dense = true;
  profile.heads = {{{topk, 0.04, 0.61}, {dense, 0, 0}, {block_error, 0.03, 0.2}},
                   {{cdf, 0.0501, 0.3}, {error, 0.02, 0.4}, {topk, 0.04, 0.6}}};
  return profile;
}

TEST(Profile, ReadsBackWhatItWrote) {
  const Profile written = example();
  const std::string text = to_yaml(written);
  const Profile read = parse_profile(text, "p.yaml");
  EXPECT_EQ(to_yaml(read), text);
  EXPECT_EQ(read.model, written.model);
  EXPECT_EQ(read.made_with, written.made_with);
  EXPECT_EQ(read.dense, written.dense);
  EXPECT_EQ(read.quality.psnr, 24.31);
  const Policy policy = policy_of(read);
  EXPECT_EQ(policy.dropped, Dropped::mean);
  EXPECT_EQ(policy.ranking, Ranking::error);
  EXPECT_EQ(policy.cell, 32);
  EXPECT_EQ(policy.selection_rows, 128);
  EXPECT_EQ(policy.dense_steps, 3);
  EXPECT_EQ(policy.dense_layers, 1);
  ASSERT_EQ(policy.per_head.size(), 2U);
  for (size_t layer = 0; layer < 2; ++layer)
    for (size_t head = 0; head < 3; ++head)
      EXPECT_EQ(policy.per_head[layer][head], written.heads[layer][head].policy) << layer << " " << head;
}

TEST(Profile, WritesReadableYaml) {
  const std::string text = to_yaml(example());
  EXPECT_THAT(text, HasSubstr("{topk: 0.35, similarity: -0.1, pv_threshold: 50, error: 0.04, sparsity: 0.61}\n"));
  EXPECT_THAT(text, HasSubstr("{error_bound: 1e-07, "));
  EXPECT_THAT(text, HasSubstr("{block_error: 0.0045, "));
  EXPECT_THAT(text, HasSubstr("\ndropped: mean\nselect: error\ncell: 32\nselection_rows: 128\n"));
  EXPECT_THAT(text, HasSubstr("{dense: true, error: 0, sparsity: 0}\n"));
  EXPECT_THAT(text, HasSubstr("\n# layer 1\n"));
}

/// Returns the example without the keys `dropped`, `select` and `cell`, as in files of versions without means.
std::string of_before_means() {
  Profile profile = example();
  profile.heads[1][1] = profile.heads[0][2] = profile.heads[1][0];
  std::string text = to_yaml(profile);
  const std::string keys = "dropped: mean\nselect: error\ncell: 32\n";
  return text.erase(text.find(keys), keys.size());
}

TEST(Profile, TreatsOldFilesWithoutMeansAsThePublishedMethod) {
  const Profile read = parse_profile(of_before_means(), "p.yaml");
  EXPECT_EQ(read.dropped, Dropped::none);
  EXPECT_EQ(read.ranking, Ranking::mass);
  EXPECT_EQ(policy_of(read).dropped, Dropped::none);
  EXPECT_EQ(policy_of(read).ranking, Ranking::mass);
  EXPECT_EQ(policy_of(read).per_head[0][0].topk, 0.35);
  EXPECT_THAT(to_yaml(read), HasSubstr("\ndropped: none\nselect: mass\n")) << "what is written anew says so";
}

/// Replaces `from` by `to` in the example's text. Returns the cause of the error that reading the text gives.
std::string cause_of(const std::string& from, const std::string& to) {
  std::string text = to_yaml(example());
  const size_t place = text.find(from);
  if (place == std::string::npos) return "the example has no " + from;
  text.replace(place, from.size(), to);
  try {
    parse_profile(text, "p.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "accepted";
}

TEST(Profile, NamesTheFileLineAndKeyOfAnError) {
  EXPECT_THAT(cause_of("topk: 0.35", "topk: 1.5"), AllOf(HasSubstr("p.yaml:"), HasSubstr("layers[0][0].topk")));
  EXPECT_THAT(cause_of("topk: 0.35", "topk: 0"), HasSubstr("topk is 0"));
  EXPECT_THAT(cause_of("topk: 0.35", "topk: many"), HasSubstr("is not a number"));
  EXPECT_THAT(cause_of("topk: 0.35", "topk: nan"), HasSubstr("is not a number"));
  EXPECT_THAT(cause_of("similarity: 0.35, ", ""), HasSubstr("layers[1][0].similarity is missing"));
  EXPECT_THAT(cause_of("pv_threshold: 50", "pv_treshold: 50"), HasSubstr("pv_threshold is missing"));
  EXPECT_THAT(cause_of("dense_steps: 3", "dense_steps: 3.5"), HasSubstr("dense_steps is not a whole number"));
  EXPECT_THAT(cause_of("selection_rows: 128", "selection_rows: 100"), HasSubstr("selection_rows is 100"));
  EXPECT_THAT(cause_of("dropped: mean", "dropped: nothing"), HasSubstr("dropped is nothing, not mean or none"));
  EXPECT_THAT(cause_of("select: error", "select: most"), HasSubstr("select is most, not error or mass"));
  EXPECT_THAT(cause_of("cell: 32", "cell: 48"), HasSubstr("cell is 48"));
  EXPECT_THAT(cause_of("cell: 32\n", ""), HasSubstr("cell is missing"));
  EXPECT_THAT(cause_of("dropped: mean\n", ""), HasSubstr("dropped is missing"));
  EXPECT_THAT(cause_of("dropped: mean", "dropped: none"), HasSubstr("dropped blocks have no means"));
  EXPECT_THAT(cause_of("select: error", "select: mass"), HasSubstr("but ranked by mass"));
  EXPECT_THAT(cause_of("error_bound: 1e-07", "error_bound: 0"), HasSubstr("error is 0"));
  EXPECT_THAT(cause_of("error_bound: 1e-07", "error_bound: -1"), HasSubstr("layers[1][1].error_bound"));
  EXPECT_THAT(cause_of("error_bound: 1e-07", "error_bound: 0.1, topk: 0.5"), HasSubstr("topk is unknown"));
  EXPECT_THAT(cause_of("block_error: 0.0045", "block_error: 0"), HasSubstr("block_error is 0"));
  EXPECT_THAT(cause_of("block_error: 0.0045", "block_error: 2000"), HasSubstr("layers[0][2].block_error"));
  EXPECT_THAT(cause_of("block_error: 0.0045", "block_error: 0.1, cdf: 0.5"), HasSubstr("cdf is unknown"));
  EXPECT_THAT(cause_of("dense: true", "dense: yes"), HasSubstr("dense is not 'true'"));
  EXPECT_THAT(cause_of("dense_layers: 1", "dense_layers: 1\nextra: 2"), HasSubstr("extra is unknown"));
  EXPECT_THAT(cause_of("dense_layers: 1", "dense_layers: 1\ndense_layers: 2"), HasSubstr("appears twice"));
  EXPECT_THAT(cause_of("layers:\n", "layers: []\nmore:\n"), HasSubstr("layers is not a list"));
  EXPECT_THAT(cause_of("{dense: true, error: 0, sparsity: 0}", "[1, 2]"), HasSubstr("layers[0][1] is not a map"));
  EXPECT_THAT(cause_of("dense_layers: 1", "dense_layers: ["), HasSubstr("not valid YAML"));
  for (const char* text : {"", "[]", "7", "- a", "%", "a: *b", "\xff\xfe"})
    EXPECT_THROW(parse_profile(text, "p.yaml"), Error) << text;
}

/// Returns a profile that gives a setting for the whole run, but no policies for single heads.
Profile setting_alone() {
  Profile profile = example();
  profile.heads.clear();
  profile.settings = {{"attention", "sparse"}, {"cache", "forecast:0.2:20%"}, {"dense_steps", "20%"}, {"topk", "0.3"}};
  profile.quality = {.psnr = 40.12, .ssim = 0.98, .psnr_lowest = 36.5, .seconds = 4.25, .full_seconds = 25.5};
  return profile;
}

TEST(Profile, HoldsSettingsWithOrWithoutHeads) {
  const Profile written = setting_alone();
  const std::string text = to_yaml(written);
  const Profile read = parse_profile(text, "p.yaml");
  EXPECT_EQ(to_yaml(read), text);
  EXPECT_EQ(read.settings, written.settings);
  EXPECT_TRUE(read.heads.empty());
  EXPECT_EQ(read.quality.psnr_lowest, 36.5);
  EXPECT_EQ(read.quality.seconds, 4.25);
  EXPECT_EQ(read.quality.full_seconds, 25.5);
  for (const char* of_heads : {"bounds", "untuned", "layers", "selection_rows", "dense_layers"})
    EXPECT_THAT(text, ::testing::Not(HasSubstr(of_heads)));
  Profile both = example();
  both.settings = {{"attention", "sparse"}, {"cache", "0"}};
  const Profile again = parse_profile(to_yaml(both), "p.yaml");
  EXPECT_EQ(again.settings, both.settings);
  EXPECT_EQ(again.heads.size(), 2U);
  EXPECT_EQ(again.dense, both.dense);
}

TEST(Profile, RefusesSettingsThatAreNotPlainValues) {
  const std::string text = to_yaml(setting_alone());
  const auto cause = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    try {
      parse_profile(changed, "p.yaml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(cause("topk: 0.3", "topk: [0.3]"),
              AllOf(HasSubstr("p.yaml:"), HasSubstr("settings.topk is not a single")));
  EXPECT_THAT(cause("topk: 0.3", "cache: 0"), HasSubstr("settings.cache appears twice"));
  EXPECT_THAT(cause("full_seconds: 25.5", "full_seconds: -1"), HasSubstr("full_seconds is out of range"));
  const size_t start = text.find("settings: "), end = text.find('\n', start);
  const std::string whole = text.substr(start, end - start);
  EXPECT_THAT(cause(whole, "settings: fast"), HasSubstr("settings is not a map"));
  EXPECT_THAT(cause(whole, "settings: {}"), HasSubstr("is missing")) << "a file that has neither";
}

TEST(Profile, RefusesLayersOfDifferentWidth) {
  Profile profile = example();
  profile.heads[1].pop_back();
  EXPECT_THROW(parse_profile(to_yaml(profile), "p.yaml"), Error);
}

}  // namespace
}  // namespace sparsereel::attention
