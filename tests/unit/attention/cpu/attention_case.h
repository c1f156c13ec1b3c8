// Cases for the tests of attention on CPUs: random inputs with a fixed seed and the strides of a packed projection, and
// a naive softmax in double as the reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "attention/cpu/block_sparse.h"
#include "attention/cpu/selection.h"
#include "tests/support/reference_attention.h"

namespace sparsereel::attention::cpu {

struct Sizes {
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t head_dim = 64;
  int64_t heads = 2;
  int64_t batch = 2;
};

inline void serial(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  body(0, count);
}

/// The parameters of an attention call, and the memory of its inputs. q, k and v are views of one array
/// [batch, max(queries, keys), 3, heads, head_dim].
class Case {
 public:
  explicit Case(const Sizes& sizes, unsigned seed = 1) : sizes_(sizes) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const int64_t tokens = std::max(sizes.queries, sizes.keys), row = sizes.heads * sizes.head_dim;
    inputs.resize(static_cast<size_t>(sizes.batch * tokens * 3 * row));
    for (float& x : inputs) x = normal(generator);
    const auto view = [&](int64_t which) {
      return View<const float>{.data = inputs.data() + which * row,
                               .batch_stride = tokens * 3 * row,
                               .token_stride = 3 * row,
                               .head_stride = sizes.head_dim};
    };
    params.batch = sizes.batch;
    params.heads = sizes.heads;
    params.queries = sizes.queries;
    params.keys = sizes.keys;
    params.head_dim = sizes.head_dim;
    params.q = view(0);
    params.k = view(1);
    params.v = view(2);
    params.scale = 1 / std::sqrt(static_cast<double>(sizes.head_dim));
  }

  struct Output {
    std::vector<float> out, lse;
    Counts counts;
  };

  float* row(const View<const float>& view, int64_t b, int64_t token, int64_t h) {
    return const_cast<float*>(view.row(b, token, h));
  }

  Output reference(const BlockMap& map, double threshold = kNeverSkip, Arithmetic arithmetic = Arithmetic::exact) {
    return run(
        [&](const KernelParams& p, const std::vector<double>& thresholds) {
          return reference_attention(p, map, thresholds, arithmetic, serial);
        },
        threshold);
  }

  Output fast(const BlockMap& map, const TileKernel& kernel, double threshold = kNeverSkip,
              Arithmetic arithmetic = Arithmetic::exact) {
    std::vector<float> memory(static_cast<size_t>(block_sparse_scratch_floats(params, arithmetic)), NAN);
    return run(
        [&](const KernelParams& p, const std::vector<double>& thresholds) {
          return block_sparse_attention(p, map, thresholds, arithmetic, kernel, memory.data(), serial);
        },
        threshold);
  }

  /// Computes attention to the visible keys of the kept blocks in double, without online softmax.
  Output naive(const BlockMap& map) {
    return run(
        [&](const KernelParams& p, const std::vector<double>&) {
          for (int64_t b = 0; b < p.batch; ++b)
            for (int64_t h = 0; h < p.heads; ++h)
              for (int64_t i = 0; i < p.queries; ++i) naive_row(p, map.row(b, h, i / kBlock), b, h, i);
          return Counts{};
        },
        0);
  }

  KernelParams params;
  std::vector<float> inputs;

 private:
  template <typename Run>
  Output run(const Run& run_kernel, double threshold) {
    Output output;
    output.out.assign(static_cast<size_t>(sizes_.batch * sizes_.queries * sizes_.heads * sizes_.head_dim), NAN);
    output.lse.assign(static_cast<size_t>(sizes_.batch * sizes_.queries * sizes_.heads), NAN);
    KernelParams p = params;
    p.out = {.data = output.out.data(),
             .batch_stride = sizes_.queries * sizes_.heads * sizes_.head_dim,
             .token_stride = sizes_.heads * sizes_.head_dim,
             .head_stride = sizes_.head_dim};
    p.lse = output.lse.data();
    output.counts = run_kernel(p, std::vector<double>(static_cast<size_t>(sizes_.heads), threshold));
    return output;
  }

  static void naive_row(const KernelParams& p, const uint8_t* kept, int64_t b, int64_t h, int64_t i) {
    const float* q = p.q.row(b, i, h);
    std::vector<double> score, out(static_cast<size_t>(p.head_dim), 0.0);
    std::vector<int64_t> key;
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < p.visible_keys(b, i); ++j) {
      if (kept[j / kBlock] == 0) continue;
      double s = 0;
      for (int64_t d = 0; d < p.head_dim; ++d) s += static_cast<double>(q[d]) * p.k.row(b, j, h)[d] * p.scale;
      key.push_back(j);
      score.push_back(s);
      top = std::max(top, s);
    }
    for (size_t n = 0; n < key.size(); ++n) {
      const double weight = std::exp(score[n] - top);
      sum += weight;
      for (int64_t d = 0; d < p.head_dim; ++d) out[static_cast<size_t>(d)] += weight * p.v.row(b, key[n], h)[d];
    }
    for (int64_t d = 0; d < p.head_dim; ++d)
      p.out.row(b, i, h)[d] = key.empty() ? 0.0F : static_cast<float>(out[static_cast<size_t>(d)] / sum);
    p.lse[(b * p.heads + h) * p.queries + i] = static_cast<float>(top + std::log(sum));
  }

  Sizes sizes_;
};

/// A case of grouped-query attention: several heads of q share a head of k and v. `repeated` is the equivalent case in
/// which each head of q has its own copy of k and v.
struct GroupedCase {
  static constexpr int64_t kGroup = 3, kHeads = 6;

  explicit GroupedCase(const Sizes& sizes)
      : repeated({.queries = sizes.queries, .keys = sizes.keys, .head_dim = sizes.head_dim, .heads = kHeads}) {
    const KernelParams& p = repeated.params;
    for (const View<const float>& view : {p.k, p.v})
      for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t t = 0; t < p.keys; ++t)
          for (int64_t h = 0; h < kHeads; ++h)
            std::copy_n(view.row(b, t, h / kGroup * kGroup), p.head_dim, repeated.row(view, b, t, h));
  }

  /// Returns the case with shared heads: the current inputs and masks of `repeated`, with one copy of each head of k
  /// and v.
  Case fewer() const {
    Case c = repeated;
    c.params.kv_heads = kHeads / kGroup;
    for (View<const float>* view : {&c.params.k, &c.params.v}) view->head_stride *= kGroup;
    return c;
  }

  Case repeated;
};

/// Passes if max|actual - expected| <= tolerance * max(1, max|expected|), infinities are in the same places, and there
/// is no NaN.
inline ::testing::AssertionResult near(const std::vector<float>& actual, const std::vector<float>& expected,
                                       double tolerance) {
  if (actual.size() != expected.size()) return ::testing::AssertionFailure() << "sizes differ";
  double scale = 1;
  for (const float e : expected)
    if (std::isfinite(e)) scale = std::max<double>(scale, std::abs(e));
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool same =
        std::isinf(expected[i]) ? actual[i] == expected[i] : std::abs(actual[i] - expected[i]) <= tolerance * scale;
    if (!same) return ::testing::AssertionFailure() << "at " << i << ": " << actual[i] << ", expected " << expected[i];
  }
  return ::testing::AssertionSuccess();
}

inline double relative_l1(const std::vector<float>& actual, const std::vector<float>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += std::abs(static_cast<double>(actual[i]) - expected[i]);
    size += std::abs(static_cast<double>(expected[i]));
  }
  return error / size;
}

/// Returns a seeded map of about half of the blocks.
inline BlockMap random_map(const KernelParams& params, unsigned seed = 7) {
  BlockMap map(params.batch, params.heads, params.query_blocks(), params.key_blocks(), false);
  std::mt19937 generator(seed);
  for (uint8_t& bit : map.bits) bit = generator() % 2;
  keep_visible(params, map);
  return map;
}

constexpr double kTolerance = 1e-5;  // for near(): bound on the difference of a fast kernel from the reference

/// Bound on the relative L1 difference between a fast kernel and the reference, both in 8 bits. They differ because
/// fp32 and double round a few values to different 8-bit numbers. The error of the 8-bit formats themselves is 1% or
/// more.
constexpr double kSameArithmetic = 1e-3;

/// Makes every third key block larger than the others, so that some P.V products can be skipped.
inline void make_loud_and_quiet(Case& c) {
  const KernelParams& p = c.params;
  for (int64_t t = 0; t < p.keys; ++t)
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t d = 0; d < p.head_dim; ++d) c.row(p.k, b, t, h)[d] *= t / kBlock % 3 == 0 ? 5.0F : 0.5F;
}

/// Makes four channels (two rotary pairs) of k so loud that they hold most of its energy. Subtracting the mean does not
/// help, because the rotary embedding makes their mean zero. Before the embedding, k has the mean 30 or -30 in these
/// channels. q is a third as large there as in the other channels.
inline void make_loud_channels(Case& c) {
  const KernelParams& p = c.params;
  const auto turn = [&](const View<const float>& view, int64_t tokens, double mean, double gain) {
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < p.heads; ++h)
          for (const int64_t pair : {int64_t{1}, p.head_dim / 4}) {
            float* x = c.row(view, b, t, h) + 2 * pair;
            const double angle = static_cast<double>(t) *
                                 std::pow(1e4, -2.0 * static_cast<double>(pair) / static_cast<double>(p.head_dim));
            const double first = gain * x[0] + mean, second = gain * x[1] - mean;
            x[0] = static_cast<float>(first * std::cos(angle) - second * std::sin(angle));
            x[1] = static_cast<float>(second * std::cos(angle) + first * std::sin(angle));
          }
  };
  turn(p.q, p.queries, 0, 0.3);
  turn(p.k, p.keys, 30, 1);
}

/// Expects every kernel to skip as many P.V products as the reference skips (some, but not all), and to give the same
/// output.
inline void expect_same_skips(Case& c, const BlockMap& map) {
  const Case::Output reference = c.reference(map, 2);
  EXPECT_GT(reference.counts.skipped_pv_blocks, 0);
  EXPECT_LT(reference.counts.skipped_pv_blocks, reference.counts.kept_blocks);
  for (const TileKernel& kernel : tile_kernels()) {
    const Case::Output fast = c.fast(map, kernel, 2);
    EXPECT_EQ(fast.counts.skipped_pv_blocks, reference.counts.skipped_pv_blocks);
    EXPECT_TRUE(near(fast.out, reference.out, kTolerance));
  }
}

}  // namespace sparsereel::attention::cpu
