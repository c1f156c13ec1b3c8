// Ranks exchange their tokens with all heads for all tokens with some heads, and back. Tests this exchange through
// windows (memory into which other ranks write) and through messages.
#include "models/transformer/head_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "models/parallel/thread_group.h"

namespace sparsereel::models {
namespace {

/// Wraps a group so that its ranks cannot write into each other's memory.
class GroupWithoutWindows final : public Group {
 public:
  explicit GroupWithoutWindows(Group& group) : group_(group) {}
  int64_t rank() const override { return group_.rank(); }
  int64_t size() const override { return group_.size(); }
  void all_to_all(std::span<const at::Tensor> send, std::span<const at::Tensor> receive) override {
    group_.all_to_all(send, receive);
  }
  void all_gather(const at::Tensor&, std::span<const at::Tensor>) override { FAIL(); }
  void all_reduce_sum(const at::Tensor&) override { FAIL(); }
  void all_reduce_max(const at::Tensor&) override { FAIL(); }
  void broadcast(const at::Tensor&, int64_t) override { FAIL(); }
  std::shared_ptr<Group> split(int64_t) override { return nullptr; }
  Windows* windows(int64_t, at::Device) override { return nullptr; }
  void close_windows() override {}
  void abort(const std::string& reason) noexcept override { group_.abort(reason); }

 private:
  Group& group_;
};

struct Case {
  int64_t ranks, heads, text;
  bool moments, windows;
};

class HeadExchangeTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kVideo = 11, kBatch = 2, kHeadDim = 8;

  /// Returns q, k and v of all tokens and heads. They are the same on all ranks and differ by round.
  static AttentionRows all_rows(int64_t round) {
    const auto [ranks, heads, text, moments, windows] = GetParam();
    const int64_t tokens = kVideo + text;
    const at::Tensor qkv = (at::arange(kBatch * tokens * 3 * heads * kHeadDim) + 0.5 * static_cast<double>(round))
                               .view({kBatch, tokens, 3, heads, kHeadDim});
    AttentionRows rows{.q = qkv.select(2, 0), .k = qkv.select(2, 1), .v = qkv.select(2, 2)};
    if (!moments) return rows;
    rows.q_moments = at::arange(kBatch * tokens * 2, at::kFloat).view({kBatch, tokens, 2});
    rows.k_moments = -rows.q_moments;
    return rows;
  }
  /// Returns the tokens of one rank: its slice of the video, and the whole text.
  static at::Tensor tokens_of(const at::Tensor& x, const Slice& slice) {
    return at::cat({x.narrow(1, slice.first, slice.count), x.narrow(1, kVideo, GetParam().text)}, 1);
  }
  static void check(Group& group, int64_t round) {
    const AttentionRows all = all_rows(round);
    const Slice slice = slice_of(kVideo, &group), some = slice_of(GetParam().heads, &group);
    const HeadExchange exchange(group, {.batch = kBatch,
                                        .video_tokens = kVideo,
                                        .text_tokens = GetParam().text,
                                        .heads = GetParam().heads,
                                        .head_dim = kHeadDim,
                                        .has_moments = GetParam().moments,
                                        .options = all.q.options()});
    EXPECT_EQ(exchange.heads().first, some.first);
    const auto project = [&](int64_t part) { return tokens_of(part == 0 ? all.q : part == 1 ? all.k : all.v, slice); };
    // The second argument should compute the moments of q or k. This one returns them from `all`.
    const AttentionRows got = exchange.to_heads(project, [&](const at::Tensor& x) {
      return tokens_of(x.equal(project(0)) ? all.q_moments : all.k_moments, slice);
    });
    const auto heads_of = [&](const at::Tensor& x) { return x.narrow(2, some.first, some.count); };
    EXPECT_TRUE(got.q.equal(heads_of(all.q)) && got.k.equal(heads_of(all.k)) && got.v.equal(heads_of(all.v)));
    EXPECT_EQ(got.q_moments.defined(), GetParam().moments);
    if (GetParam().moments) {
      EXPECT_TRUE(got.q_moments.equal(all.q_moments) && got.k_moments.equal(all.k_moments));
    }
    const at::Tensor back = exchange.to_tokens((got.q + got.v).contiguous());
    EXPECT_TRUE(back.is_contiguous());
    EXPECT_TRUE(back.equal(tokens_of(all.q + all.v, slice)));
  }
};

TEST_P(HeadExchangeTest, ExchangesTokensForHeadsAndBack) {
  run_in_threads(GetParam().ranks, [](Group& group) {
    GroupWithoutWindows messages(group);
    for (int64_t round = 0; round < 4; ++round) check(GetParam().windows ? group : messages, round);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [ranks, heads] : {std::pair<int64_t, int64_t>{1, 3}, {2, 4}, {3, 3}, {3, 5}})
    for (const int64_t text : {0, 3})
      for (const bool moments : {false, true})
        for (const bool windows : {false, true}) all.push_back({ranks, heads, text, moments, windows});
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::to_string(c.heads) + "HeadsOf" + std::to_string(c.ranks) + "RanksWith" + std::to_string(c.text) +
         "Words" + (c.moments ? "AndMoments" : "") + (c.windows ? "ByWindows" : "ByMessages");
}

INSTANTIATE_TEST_SUITE_P(Ranks, HeadExchangeTest, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace sparsereel::models
