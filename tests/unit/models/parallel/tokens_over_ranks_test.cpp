// Compares each family's transformer on several ranks, each with a part of the tokens and heads, with one rank.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "hilbert/error.h"
#include "models/parallel/thread_group.h"
#include "models/request/attention_run.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"
#include "tests/support/minimax_h3_files.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using attention::Mode;

/// The result of a forward pass.
struct ForwardResult {
  at::Tensor prediction;
  attention::Statistics counts;  // summed over all ranks
};

AttentionRun in_mode(Mode mode) {
  AttentionRun run;
  run.mode = mode;
  return run;
}

class TokensOverRanks : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  /// Returns a transformer with 5 heads, a number that neither 2 nor 3 divides.
  static Component component() {
    Component odd = test::with_random_weights(test::transformer_component(GetParam()), 7);
    odd.config["num_attention_heads"] = 5;
    for (const char* name : {"added_kv_proj_dim", "cross_attention_dim"})
      if (nlohmann::json& width = odd.config[name]; !width.is_null())
        width = 5 * odd.config["attention_head_dim"].get<int64_t>();
    return odd;
  }
  test::TransformerForward given(at::ScalarType dtype) const {
    return test::transformer_forward(GetParam(), golden_, dtype);
  }

  ForwardResult forward(const AttentionRun& how, Group* group, at::ScalarType dtype = at::kFloat) const {
    const c10::InferenceMode inference;
    at::set_num_threads(1);  // one thread per rank
    AttentionRun run = how;
    run.tokens = group;
    const auto transformer = load_transformer(component(), at::kCPU, dtype);
    const test::TransformerForward input = given(dtype);
    const at::Tensor prediction = transformer->forward(input.latents, input.conditioning, input.timesteps, run);
    return {prediction, run.statistics};
  }
  ForwardResult over(int64_t ranks, const AttentionRun& how, at::ScalarType dtype = at::kFloat) const {
    std::vector<ForwardResult> all(static_cast<size_t>(ranks));
    run_in_threads(ranks, [&](Group& group) { all[static_cast<size_t>(group.rank())] = forward(how, &group, dtype); });
    ForwardResult first = all.front();
    for (size_t rank = 1; rank < all.size(); ++rank) {
      EXPECT_TRUE(all[rank].prediction.equal(first.prediction)) << rank;
      first.counts += all[rank].counts;
    }
    return first;
  }

  test::Golden golden_{GetParam().family->folder + "dit_golden"};
};

TEST_P(TokensOverRanks, MatchOneRankWithFullAttention) {
  for (const auto order : {hilbert::TokenOrder::hilbert, hilbert::TokenOrder::native}) {
    AttentionRun how;
    how.token_order = order;
    const at::Tensor alone = forward(how, nullptr).prediction;
    for (const int64_t ranks : {1, 2, 3})
      EXPECT_TRUE(test::close_to(over(ranks, how).prediction, alone, 1e-4)) << ranks << hilbert::name(order);
  }
}

TEST_P(TokensOverRanks, MatchOneRankInSixteenBits) {
  const at::Tensor alone = forward({}, nullptr, at::kBFloat16).prediction;
  EXPECT_TRUE(test::close_to(over(3, {}, at::kBFloat16).prediction, alone, 2e-2));
}

// Blocks are chosen by pooled queries and keys. On several ranks these may differ in their last bits, because sums have
// another order. So the chosen blocks may differ, but not their number.
TEST_P(TokensOverRanks, KeepTheSameNumberOfSparseBlocks) {
  const AttentionRun how = in_mode(Mode::sparse);
  const ForwardResult alone = forward(how, nullptr);
  for (const int64_t ranks : {2, 3}) {
    const ForwardResult shared = over(ranks, how);
    EXPECT_EQ(shared.counts.total_blocks, alone.counts.total_blocks);
    EXPECT_EQ(shared.counts.kept_blocks, alone.counts.kept_blocks);
    EXPECT_TRUE(test::close_to(shared.prediction, alone.prediction, 1e-3));
  }
}

TEST_P(TokensOverRanks, MatchOneRankWithQuantizedAttention) {
  const AttentionRun how = in_mode(Mode::quantized);
  EXPECT_TRUE(test::close_to(over(2, how).prediction, forward(how, nullptr).prediction, 1e-2));
}

TEST_P(TokensOverRanks, RefuseMoreRanksThanHeads) {
  EXPECT_TRUE(test::throws_error([&] { over(6, {}); }, {"6 ranks cannot share a video of only 5 attention heads"}));
}

/// Ranks divide the video's tokens among them. Each rank has all tokens of the sound.
TEST(SoundOverRanks, MatchesOneRankWithTheSameBitsOnAllRanks) {
  const test::ParityCase one = test::minimax_h3_case();
  const test::TemporaryFolder folder;
  const Component component =
      test::open_minimax_h3(test::write_tensors(folder / "weights.safetensors", test::minimax_h3_weights(one)), one);
  const auto forward = [&](Group* group) {
    const c10::InferenceMode inference;
    at::set_num_threads(1);  // one thread per rank
    AttentionRun run;
    run.tokens = group;
    return load_transformer(component, at::kCPU, at::kFloat)
        ->predict(test::minimax_h3_input(one, test::Golden("minimax_h3/dit_golden"), at::kFloat), run);
  };
  const Prediction alone = forward(nullptr);
  std::vector<Prediction> ranks(2);
  run_in_threads(2, [&](Group& group) { ranks[static_cast<size_t>(group.rank())] = forward(&group); });
  EXPECT_TRUE(ranks[1].sound.equal(ranks[0].sound));
  EXPECT_TRUE(test::close_to(ranks[0].sound, alone.sound, 1e-5));
  EXPECT_TRUE(test::close_to(ranks[0].video, alone.video, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Families, TokensOverRanks, ::testing::ValuesIn(test::parity_cases("dit_cases.json")),
                         test::case_name);

}  // namespace
}  // namespace sparsereel::models
