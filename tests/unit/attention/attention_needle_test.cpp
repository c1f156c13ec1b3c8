// A needle-in-a-haystack test: causal sparse attention must find the few keys that matter among 128K keys.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/attention/attend_on_cpu.h"

namespace sparsereel::attention {
namespace {

constexpr int64_t kKeys = 128 << 10, kNeedles = 9, kDim = 64;
constexpr int64_t kLength = 4;   // tokens of a needle; sparse attention may lose a needle of one token
constexpr int64_t kAsking = 64;  // number of queries that ask for each needle
constexpr double kScore = 15;    // log of the sum of exp(score) over a needle's tokens; gives it 0.9 of the attention

int64_t place_of(int64_t needle) {
  return (needle + 1) * kKeys / (kNeedles + 1);
}

/// Keys with nine needles, one at each tenth of the keys. Each needle has its own value. Of the last queries, kAsking
/// attend to each needle. All heads of q share one head of k and v. They ask for the needles in different orders.
struct Haystack {
  at::Tensor q, k, v, values;  // values: [heads, kNeedles, D], the needles' v in the order of the queries

  explicit Haystack(int64_t heads) {
    at::manual_seed(3);
    const auto unit = [](int64_t rows) {
      const at::Tensor x = at::randn({rows, kDim});
      return x / x.norm(2, -1, /*keepdim=*/true);
    };
    const at::Tensor directions = unit(kNeedles);
    const double root = std::sqrt(static_cast<double>(kDim));
    k = at::randn({1, kKeys, 1, kDim});
    v = at::randn({1, kKeys, 1, kDim});
    const at::Tensor of_needles = unit(kNeedles) * 8;
    for (int64_t i = 0; i < kNeedles; ++i) {
      k[0].narrow(0, place_of(i), kLength).copy_(directions[i] * (kScore - std::log(kLength)));
      v[0].narrow(0, place_of(i), kLength).copy_(of_needles[i]);
    }
    const auto in_orders = [&](const at::Tensor& needles) {
      std::vector<at::Tensor> orders;
      for (int64_t h = 0; h < heads; ++h) orders.push_back(needles.roll(-2 * h, 0));
      return at::stack(orders);
    };
    values = in_orders(of_needles);
    q = in_orders(directions).repeat_interleave(kAsking, 1).transpose(0, 1).unsqueeze(0) * root;
  }

  /// Returns the weight [heads, kNeedles] with which each needle's value is in the output of the queries that ask for
  /// it.
  at::Tensor weights(const Context& context) const {
    Workspace workspace;
    const at::Tensor out = attend(q, k, v, context, workspace).out[0].transpose(0, 1).unflatten(1, {kNeedles, kAsking});
    return (out * values.unsqueeze(2)).sum(-1).mean(2) / (values * values).sum(-1);
  }
};

void expect_needles_kept(int64_t heads) {
  const Haystack hay(heads);
  Context context;
  context.causal = true;
  const at::Tensor full = hay.weights(context);
  EXPECT_GT(full.min().item<double>(), 0.8) << full;
  context.mode = Mode::sparse;
  context.policy.defaults.selection = Selection::topk;
  context.policy.defaults.topk = 0.15;
  for (const Dropped dropped : {Dropped::mean, Dropped::none}) {
    context.policy.dropped = dropped;
    context.policy.ranking = dropped == Dropped::mean ? Ranking::error : Ranking::mass;
    const at::Tensor kept = hay.weights(context) / full;
    EXPECT_GT(kept.min().item<double>(), 0.95) << name(dropped) << "\n" << kept;
  }
}

TEST(NeedleInCausalAttention, KeepsItsWeightIfMostBlocksAreDropped) {
  expect_needles_kept(1);
}

TEST(NeedleInCausalAttention, KeepsItsWeightForEveryHeadThatSharesTheKeys) {
  expect_needles_kept(4);
}

}  // namespace
}  // namespace sparsereel::attention
