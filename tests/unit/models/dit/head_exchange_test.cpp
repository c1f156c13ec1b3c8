// Slices of tokens to slices of heads and back, by windows and by messages.
#include "models/dit/head_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "models/parallel/thread_group.h"

namespace sparsereel::models {
namespace {

/// Another group, whose ranks do not reach each other's memory.
class MessagesAlone final : public Group {
 public:
  explicit MessagesAlone(Group& group) : group_(group) {}
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
  bool moments, windows, one_projection;
};

class HeadExchangeOf : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kVideo = 11, kBatch = 2, kHeadDim = 8;

  /// Of all tokens and heads, the same on all ranks.
  static AttentionRows all_rows(int64_t round) {
    const auto [ranks, heads, text, moments, windows, one_projection] = GetParam();
    const int64_t tokens = kVideo + text;
    const at::Tensor qkv = (at::arange(kBatch * tokens * 3 * heads * kHeadDim) + 0.5 * static_cast<double>(round))
                               .view({kBatch, tokens, 3, heads, kHeadDim});
    AttentionRows rows{.q = qkv.select(2, 0), .k = qkv.select(2, 1), .v = qkv.select(2, 2)};
    if (!moments) return rows;
    rows.q_moments = at::arange(kBatch * tokens * 2, at::kFloat).view({kBatch, tokens, 2});
    rows.k_moments = -rows.q_moments;
    return rows;
  }
  /// A rank's slice of the video, and the text.
  static at::Tensor tokens_of(const at::Tensor& x, const Slice& slice) {
    return at::cat({x.narrow(1, slice.first, slice.count), x.narrow(1, kVideo, GetParam().text)}, 1);
  }
  static AttentionRows tokens_of(const AttentionRows& rows, const Slice& slice) {
    AttentionRows own;
    if (GetParam().one_projection) {
      const at::Tensor qkv = tokens_of(at::stack({rows.q, rows.k, rows.v}, 2), slice);
      own = {.q = qkv.select(2, 0), .k = qkv.select(2, 1), .v = qkv.select(2, 2)};
    } else {
      own = {.q = tokens_of(rows.q, slice), .k = tokens_of(rows.k, slice), .v = tokens_of(rows.v, slice)};
    }
    if (!GetParam().moments) return own;
    own.q_moments = tokens_of(rows.q_moments, slice);
    own.k_moments = tokens_of(rows.k_moments, slice);
    return own;
  }
  static void check(Group& group, int64_t round) {
    const AttentionRows all = all_rows(round);
    const Slice slice = slice_of(kVideo, &group), some = slice_of(GetParam().heads, &group);
    const AttentionRows own = tokens_of(all, slice);
    const HeadExchange exchange(group, own, kVideo, GetParam().text);
    EXPECT_EQ(exchange.heads().first, some.first);
    const AttentionRows got = exchange.to_heads(own);
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

TEST_P(HeadExchangeOf, GivesAllTokensOfSomeHeadsAndBack) {
  run_in_threads(GetParam().ranks, [](Group& group) {
    MessagesAlone messages(group);
    for (int64_t round = 0; round < 4; ++round) check(GetParam().windows ? group : messages, round);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [ranks, heads] : {std::pair<int64_t, int64_t>{1, 3}, {2, 4}, {3, 3}, {3, 5}})
    for (const int64_t text : {0, 3})
      for (const bool moments : {false, true})
        for (const bool windows : {false, true})
          all.push_back({.ranks = ranks,
                         .heads = heads,
                         .text = text,
                         .moments = moments,
                         .windows = windows,
                         .one_projection = (ranks + text) % 2 == 0});
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::to_string(c.heads) + "HeadsOf" + std::to_string(c.ranks) + "RanksWith" + std::to_string(c.text) +
         "Words" + (c.moments ? "AndMoments" : "") + (c.windows ? "ByWindows" : "ByMessages");
}

INSTANTIATE_TEST_SUITE_P(Ranks, HeadExchangeOf, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace sparsereel::models
