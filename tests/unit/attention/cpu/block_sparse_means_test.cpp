// Tests means that replace dropped blocks: compares the reference with formulas in double, and every fast kernel with
// the reference.
#include <gtest/gtest.h>

#include <thread>

#include "attention/cpu/block_sparse.h"
#include "attention_case.h"

namespace sparsereel::attention::cpu {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// Returns true if all keys of a block are real video keys that every query of the query block sees.
bool has_means(const KernelParams& p, int64_t b, int64_t query_block, int64_t key_block) {
  const int64_t first = query_block * kBlock, end = std::min(first + kBlock, p.queries);
  for (int64_t key = key_block * kBlock; key < (key_block + 1) * kBlock; ++key) {
    if (key >= p.key_length(b) || key >= video_part(p.keys, p.text_tokens)) return false;
    for (int64_t i = first; i < end; ++i)
      if (key >= p.visible_keys(b, i)) return false;
  }
  return true;
}

/// Computes the attention of one query over all its scores at once, in double.
class RowByHand {
 public:
  RowByHand(const KernelParams& p, int64_t b, int64_t h, int64_t query)
      : p_(p), b_(b), h_(h), q_(p.q.row(b, query, h)), visible_(p.visible_keys(b, query)) {}

  /// Adds the mean of the tokens [first, first + count).
  void add(int64_t first, int64_t count) {
    std::vector<double> key(static_cast<size_t>(p_.head_dim)), value(key.size());
    for (int64_t t = first; t < first + count; ++t)
      for (size_t d = 0; d < key.size(); ++d) {
        key[d] += p_.k.row(b_, t, h_)[d] / static_cast<double>(count);
        value[d] += p_.v.row(b_, t, h_)[d] / static_cast<double>(count);
      }
    double score = std::log(static_cast<double>(count));
    for (size_t d = 0; d < key.size(); ++d) score += p_.scale * q_[d] * key[d];
    scores_.push_back(score);
    values_.push_back(value);
  }

  void add_block(int64_t block) {
    for (int64_t t = block * kBlock; t < std::min((block + 1) * kBlock, visible_); ++t) add(t, 1);
  }

  void add_means(int64_t block) {
    for (int64_t t = 0; t < kBlock; t += p_.mean_cell) add(block * kBlock + t, p_.mean_cell);
  }

  void finish(float* out, float& lse) const {
    double top = kMinusInfinity, sum = 0;
    for (const double s : scores_) top = std::max(top, s);
    std::vector<double> total(static_cast<size_t>(p_.head_dim));
    for (size_t n = 0; n < scores_.size(); ++n) {
      sum += std::exp(scores_[n] - top);
      for (size_t d = 0; d < total.size(); ++d) total[d] += std::exp(scores_[n] - top) * values_[n][d];
    }
    for (size_t d = 0; d < total.size(); ++d) out[d] = sum > 0 ? static_cast<float>(total[d] / sum) : 0.0F;
    lse = static_cast<float>(top + std::log(sum));
  }

 private:
  const KernelParams& p_;
  const int64_t b_, h_;
  const float* q_;
  const int64_t visible_;
  std::vector<double> scores_;
  std::vector<std::vector<double>> values_;
};

Case::Output by_hand(const Case& c, const BlockMap& map) {
  const KernelParams& p = c.params;
  Case::Output output;
  output.out.resize(static_cast<size_t>(p.batch * p.queries * p.heads * p.head_dim));
  output.lse.resize(static_cast<size_t>(p.batch * p.heads * p.queries));
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < p.queries; ++i) {
        RowByHand row(p, b, h, i);
        for (int64_t j = 0; j < map.key_blocks; ++j) {
          if (map.row(b, h, i / kBlock)[j] != 0) {
            row.add_block(j);
          } else if (has_means(p, b, i / kBlock, j)) {
            row.add_means(j);
          }
        }
        row.finish(&output.out[((b * p.queries + i) * p.heads + h) * p.head_dim],
                   output.lse[(b * p.heads + h) * p.queries + i]);
      }
  return output;
}

int64_t mean_blocks_by_hand(const Case& c, const BlockMap& map) {
  int64_t blocks = 0;
  for (int64_t b = 0; b < map.batch; ++b)
    for (int64_t h = 0; h < map.heads; ++h)
      for (int64_t i = 0; i < map.query_blocks; ++i) {
        int64_t cells = 0;
        for (int64_t j = 0; j < map.key_blocks; ++j)
          if (map.row(b, h, i)[j] == 0 && has_means(c.params, b, i, j)) cells += kBlock / c.params.mean_cell;
        blocks += (cells + 63) / 64;
      }
  return blocks;
}

BlockMap no_blocks(const KernelParams& p) {
  return {p.batch, p.heads, p.query_blocks(), p.key_blocks(), false};
}

/// Compares the formulas, the reference and every fast kernel with each other, for maps that keep some blocks, no
/// blocks and all blocks.
void expect_all_agree_on_means(Case& c) {
  for (const BlockMap& map : {random_map(c.params), no_blocks(c.params), visible_blocks(c.params)}) {
    const Case::Output expected = by_hand(c, map), reference = c.reference(map);
    EXPECT_TRUE(near(reference.out, expected.out, 1e-6));
    EXPECT_TRUE(near(reference.lse, expected.lse, 1e-6));
    EXPECT_EQ(reference.counts.kept_blocks, count_blocks(map));
    EXPECT_EQ(reference.counts.mean_blocks, mean_blocks_by_hand(c, map));
    for (const TileKernel& kernel : tile_kernels()) {
      const Case::Output fast = c.fast(map, kernel);
      EXPECT_TRUE(near(fast.out, reference.out, kTolerance)) << kernel.name;
      EXPECT_TRUE(near(fast.lse, reference.lse, kTolerance)) << kernel.name;
      EXPECT_EQ(fast.counts.kept_blocks, reference.counts.kept_blocks);
      EXPECT_EQ(fast.counts.mean_blocks, reference.counts.mean_blocks);
    }
  }
}

class Cells : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(All, Cells, ::testing::Values(16, 32, 64));

TEST_P(Cells, AgreeAtEveryHeadDim) {
  for (const int64_t head_dim : {16, 17, 40, 64, 96, 128, 192, 256}) {
    Case c({.queries = 70, .keys = 460, .head_dim = head_dim, .heads = 1, .batch = 1});
    c.params.mean_cell = GetParam();
    expect_all_agree_on_means(c);
  }
}

TEST_P(Cells, AgreeAtEveryLength) {
  for (const int64_t queries : {1, 64, 65, 130})
    for (const int64_t keys : {1, 63, 64, 65, 128, 300, 1100}) {
      Case c({.queries = queries, .keys = keys, .head_dim = 24, .heads = 1});
      c.params.mean_cell = GetParam();
      expect_all_agree_on_means(c);
    }
}

TEST_P(Cells, ReplaceVideoTokensOnly) {
  for (const int64_t text : {1, 64, 74, 300}) {
    Case c({.queries = 300, .keys = 300, .head_dim = 32});
    c.params.mean_cell = GetParam();
    c.params.text_tokens = text;
    expect_all_agree_on_means(c);
  }
}

TEST_P(Cells, IgnorePaddedKeys) {
  Case c({.queries = 100, .keys = 400, .batch = 5});
  c.params.mean_cell = GetParam();
  const int64_t lengths[] = {0, 63, 64, 200, 399};
  c.params.key_lengths = lengths;
  for (int64_t token = 200; token < 400; ++token)  // padding may hold anything, such as NaN
    for (int64_t b = 0; b < 4; ++b)
      for (int64_t d = 0; d < 64; ++d) c.row(c.params.v, b, token, 0)[d] = c.row(c.params.k, b, token, 1)[d] = NAN;
  expect_all_agree_on_means(c);
  c.params.causal = true;
  c.params.text_tokens = 70;
  expect_all_agree_on_means(c);
}

TEST_P(Cells, ReplaceOnlyPastKeysUnderACausalMask) {
  for (const int64_t queries : {260, 100, 330})
    for (const int64_t keys : {260, 330}) {
      Case c({.queries = queries, .keys = keys, .head_dim = 32});
      c.params.mean_cell = GetParam();
      c.params.causal = true;
      expect_all_agree_on_means(c);
    }
}

TEST_P(Cells, AreExactIfTheirKeysAreEqual) {
  Case c({.queries = 150, .keys = 384, .head_dim = 32});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t t = 0; t < 384; ++t)
        std::copy_n(c.row(c.params.k, b, t / GetParam() * GetParam(), h), 32, c.row(c.params.k, b, t, h));
  const Case::Output full = c.naive(visible_blocks(c.params));
  c.params.mean_cell = GetParam();
  for (const BlockMap& map : {random_map(c.params), no_blocks(c.params)})
    for (const TileKernel& kernel : tile_kernels()) {
      EXPECT_TRUE(near(c.fast(map, kernel).out, full.out, kTolerance)) << kernel.name;
      EXPECT_TRUE(near(c.fast(map, kernel).lse, full.lse, kTolerance)) << kernel.name;
    }
}

TEST_P(Cells, SurviveHugeValues) {
  Case c({.queries = 100, .keys = 390});
  for (float& x : c.inputs) x *= 1e4F;
  c.params.mean_cell = GetParam();
  const BlockMap map = random_map(c.params);
  const Case::Output expected = by_hand(c, map);
  for (const TileKernel& kernel : tile_kernels())
    EXPECT_TRUE(near(c.fast(map, kernel).out, expected.out, kTolerance)) << kernel.name;
}

TEST_P(Cells, PropagateNan) {
  Case c({.queries = 70, .keys = 256});
  c.row(c.params.v, 0, 70, 1)[5] = NAN;
  c.params.mean_cell = GetParam();
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(no_blocks(c.params), kernel);
    EXPECT_TRUE(std::isnan(fast.out[(3 * 2 + 1) * 64 + 5])) << kernel.name;
    EXPECT_FALSE(std::isnan(fast.out[(3 * 2 + 1) * 64 + 4])) << kernel.name;
    EXPECT_FALSE(std::isnan(fast.out[3 * 2 * 64 + 5])) << kernel.name;
  }
}

/// Returns a case with far more than 64 cells, which kernels process in several groups of 64. Some key blocks hold
/// larger numbers than others.
Case loud_and_quiet(int64_t cell) {
  Case c({.queries = 200, .keys = 2000, .batch = 1});
  make_loud_and_quiet(c);
  c.params.mean_cell = cell;
  return c;
}

TEST_P(Cells, AreNeverSkippedButCountInTheRunningMaximum) {
  Case c = loud_and_quiet(GetParam());
  expect_same_skips(c, random_map(c.params));
  for (const TileKernel& kernel : tile_kernels())
    EXPECT_TRUE(near(c.fast(no_blocks(c.params), kernel, 0).out, by_hand(c, no_blocks(c.params)).out, kTolerance));
}

TEST_P(Cells, GiveTheSameBitsOnAnyNumberOfThreads) {
  Case c = loud_and_quiet(GetParam());
  const BlockMap map = random_map(c.params);
  const TileKernel& kernel = tile_kernels().front();
  for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::int8}) {
    const Case::Output once = c.fast(map, kernel, kNeverSkip, arithmetic);
    std::vector<float> memory(static_cast<size_t>(block_sparse_scratch_floats(c.params, arithmetic)), NAN);
    std::vector<float> out(once.out.size(), NAN);
    KernelParams p = c.params;
    p.out = {.data = out.data(), .batch_stride = 200 * 128, .token_stride = 128, .head_stride = 64};
    const ParallelFor threads = [](int64_t count, const std::function<void(int64_t, int64_t)>& body) {
      std::thread other(body, 0, count / 2);
      body(count / 2, count);
      other.join();
    };
    block_sparse_attention(p, map, std::vector<double>(2, kNeverSkip), arithmetic, kernel, memory.data(), threads);
    EXPECT_EQ(out, once.out);
  }
}

void expect_same_int8(Case& c, const BlockMap& map, double error_limit) {
  const Case::Output exact = c.reference(map), reference = c.reference(map, kNeverSkip, Arithmetic::int8);
  EXPECT_LT(relative_l1(reference.out, exact.out), error_limit);
  EXPECT_GT(relative_l1(reference.out, exact.out), error_limit / 100) << "nothing was rounded";
  EXPECT_TRUE(near(reference.lse, exact.lse, 0.02));
  EXPECT_EQ(reference.counts.mean_blocks, exact.counts.mean_blocks);
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel, kNeverSkip, Arithmetic::int8);
    EXPECT_LT(relative_l1(fast.out, reference.out), 1e-3) << kernel.name;
    EXPECT_TRUE(near(fast.lse, reference.lse, 1e-3)) << kernel.name;
    EXPECT_EQ(fast.counts.mean_blocks, reference.counts.mean_blocks);
  }
}

TEST_P(Cells, AreRoundedAlikeByTheInt8Emulations) {
  for (const int64_t head_dim : {16, 64, 128}) {
    Case c({.queries = 130, .keys = 2200, .head_dim = head_dim, .batch = 1});
    c.params.mean_cell = GetParam();
    expect_same_int8(c, random_map(c.params), 0.06);
    c.params.causal = true;
    c.params.text_tokens = 100;
    const int64_t length = 2000;
    c.params.key_lengths = &length;
    expect_same_int8(c, random_map(c.params), 0.06);
  }
}

TEST(Means, WeighAsMuchAsTheirTokensInEightBits) {
  // All keys are equal, so the weight of a mean is the number of its tokens. The largest weight must still fit into the
  // 8-bit format.
  Case c({.queries = 70, .keys = 384, .head_dim = 32});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t t = 1; t < 384; ++t) std::copy_n(c.row(c.params.k, b, 0, h), 32, c.row(c.params.k, b, t, h));
  c.params.mean_cell = 16;
  const BlockMap map = random_map(c.params);
  const Case::Output exact = c.reference(map), int8 = c.reference(map, kNeverSkip, Arithmetic::int8);
  EXPECT_TRUE(near(int8.lse, exact.lse, 1e-5));
  for (const float lse : exact.lse) EXPECT_NEAR(lse, exact.lse[0], 12) << "all finite";
}

}  // namespace
}  // namespace sparsereel::attention::cpu
