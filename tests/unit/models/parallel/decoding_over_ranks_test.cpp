// Compares decoding on several ranks, each of which decodes a band of rows, with decoding on one rank, for every
// family.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "models/parallel/thread_group.h"
#include "models/vae/row_split.h"
#include "tests/support/decoder_checks.h"
#include "tests/support/families.h"
#include "tests/support/golden.h"

namespace sparsereel::models {
namespace {

/// The results that one rank gets from decoding, alone or together with other ranks.
struct DecodeResult {
  at::Tensor frames;  // defined on rank 0 only
  std::vector<std::pair<int64_t, int64_t>> progress;
};

class DecodingOverRanks : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  std::unique_ptr<Vae> load(at::ScalarType dtype = at::kFloat) const {
    return load_vae(test::vae_component(*GetParam().family, GetParam().content["vae"]), at::kCPU, dtype);
  }
  at::Tensor latents(int64_t frames, int64_t height, int64_t width) const {
    at::manual_seed(3);
    return at::randn({1, channels_, frames, height, width});
  }
  static DecodeResult decode(Vae& vae, const at::Tensor& latents, const RowSplit* rows) {
    const c10::InferenceMode guard;
    DecodeResult result;
    std::vector<at::Tensor> pieces;
    vae.decode(
        latents, {.rows = rows}, [&](const at::Tensor& frames) { pieces.push_back(frames.clone()); },
        [&](int64_t done, int64_t total) { result.progress.emplace_back(done, total); });
    if (!pieces.empty()) result.frames = at::cat(pieces, 2);
    return result;
  }
  static std::vector<DecodeResult> decode_over(int64_t ranks, Vae& vae, const at::Tensor& latents) {
    std::vector<DecodeResult> all(static_cast<size_t>(ranks));
    run_in_threads(ranks, [&](Group& group) {
      at::set_num_threads(1);
      const RowSplit rows(group, latents.size(3), at::kCPU);
      all[static_cast<size_t>(group.rank())] = decode(vae, latents, &rows);
    });
    return all;
  }
  void expect_frames_of_one(Vae& vae, const at::Tensor& latents, int64_t ranks, double tolerance) const {
    SCOPED_TRACE(::testing::Message() << latents.sizes() << " on " << ranks << " ranks");
    at::set_num_threads(1);
    const DecodeResult alone = decode(vae, latents, nullptr);
    const std::vector<DecodeResult> shared = decode_over(ranks, vae, latents);
    EXPECT_TRUE(test::close_to(shared.front().frames, alone.frames, tolerance));
    for (const DecodeResult& each : shared) EXPECT_EQ(each.progress, alone.progress);
    for (size_t rank = 1; rank < shared.size(); ++rank) EXPECT_FALSE(shared[rank].frames.defined());
  }

 private:
  const c10::InferenceMode inference_;
  const int64_t channels_ =
      test::Golden(GetParam().family->folder + "vae_golden")[GetParam().name + ".latents"].size(1);
};

TEST_P(DecodingOverRanks, MatchesTheFramesOfOneRank) {
  const auto vae = load();
  ASSERT_TRUE(vae->decodes_in_pieces());
  const double tolerance = GetParam().family->vae_tolerance;
  expect_frames_of_one(*vae, latents(2, 2, 2), 1, tolerance);
  expect_frames_of_one(*vae, latents(3, 5, 2), 2, tolerance);  // ranks have 3 and 2 rows
  expect_frames_of_one(*vae, latents(3, 4, 2), 3, tolerance);
  expect_frames_of_one(*vae, latents(1, 3, 2), 3, tolerance);  // one row per rank, one latent frame
  expect_frames_of_one(*vae, latents(9, 2, 1), 2, tolerance);
}

TEST_P(DecodingOverRanks, MatchesOneRankInHalfPrecision) {
  const auto vae = load(at::kBFloat16);
  const at::Tensor given = latents(3, 5, 3).to(at::kBFloat16);
  const at::Tensor alone = decode(*vae, given, nullptr).frames.to(at::kFloat);
  const at::Tensor shared = decode_over(2, *vae, given).front().frames.to(at::kFloat);
  // bf16 rounds with a relative error of up to 2^-9. Several ranks sum in another order, so some values round
  // differently.
  EXPECT_LT(((shared - alone).square().mean() / alone.square().mean()).sqrt().item<double>(), 0.02);
}

TEST_P(DecodingOverRanks, UsesTheLatentsOfEveryRank) {
  const auto vae = load();
  const at::Tensor given = latents(2, 6, 2), alone = decode_over(2, *vae, given).front().frames;
  for (const int64_t row : {0, 5}) {
    at::Tensor changed = given.clone();
    changed.select(3, row).add_(1);
    EXPECT_FALSE(decode_over(2, *vae, changed).front().frames.equal(alone)) << row;
  }
  EXPECT_TRUE(decode_over(2, *vae, given).front().frames.equal(alone));  // the result does not depend on timing
}

/// Decodes frames and discards them. Returns the peak memory of this thread's tensors in bytes.
double peak_of_decoding(Vae& vae, const at::Tensor& latents, const RowSplit* rows) {
  const c10::InferenceMode guard;
  at::set_num_threads(1);
  const auto allocated = std::make_shared<test::AllocatedBytes>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, allocated);
  vae.decode(latents, {.rows = rows}, [](const at::Tensor&) {}, {});
  return static_cast<double>(allocated->peak);
}

TEST_P(DecodingOverRanks, NeedsOnlyTheMemoryOfOnePiece) {
  const auto vae = load();
  const at::Tensor given = latents(3, 24, 8);
  const double alone = peak_of_decoding(*vae, given, nullptr);
  double shared = 0;  // peak of rank 1, because rank 0 also holds the complete frames
  run_in_threads(2, [&](Group& group) {
    const RowSplit rows(group, given.size(3), at::kCPU);
    const double peak = peak_of_decoding(*vae, given, &rows);
    if (group.rank() == 1) shared = peak;
  });
  EXPECT_LT(shared, 1.1 * static_cast<double>(vae->untiled_bytes(3, 13, 8)));  // its 12 rows and 1 of rank 0
  EXPECT_LT(shared, 0.7 * alone);
}

/// Returns the first case of each VAE in the families' data.
std::vector<test::ParityCase> vaes() {
  std::vector<test::ParityCase> cases;
  std::set<std::string> seen;
  for (const test::ParityCase& one : test::parity_cases("vae_cases.json"))
    if (seen.insert(one.family->folder + one.content["vae"].get<std::string>()).second) cases.push_back(one);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, DecodingOverRanks, ::testing::ValuesIn(vaes()), test::case_name);

/// Calls body(row split, this rank's rows of x, number of its first row) on each rank. x is [F, H, W, C] and has two
/// rows for each row of latents.
void on_pieces(const at::Tensor& x, int64_t ranks, const auto& body) {
  run_in_threads(ranks, [&](Group& group) {
    const RowSplit rows(group, x.size(1) / 2, at::kCPU);
    const Slice own = rows.own();
    body(rows, x.narrow(1, 2 * own.first, 2 * own.count), 2 * own.first);
  });
}

TEST(RowSplit, SurroundsEachPieceWithNeighboringRows) {
  const at::Tensor x = at::randn({2, 14, 3, 4});
  for (const auto outside : {RowSplit::Outside::zeros, RowSplit::Outside::its_edge}) {
    const at::Tensor first = x.narrow(1, 0, 1), last = x.narrow(1, 13, 1);
    const bool zeros = outside == RowSplit::Outside::zeros;
    const at::Tensor all = at::cat({zeros ? at::zeros_like(first) : first, x, zeros ? at::zeros_like(last) : last}, 1);
    on_pieces(x, 3, [&](const RowSplit& rows, const at::Tensor& piece, int64_t start) {
      EXPECT_TRUE(rows.surrounded(piece, outside).equal(all.narrow(1, start, piece.size(1) + 2)));
      EXPECT_EQ(rows.most(piece.size(1)), 6);
    });
  }
}

TEST(RowSplit, GathersTheWholeFrame) {
  const at::Tensor x = at::randn({2, 14, 3, 4});
  on_pieces(x, 3, [&](const RowSplit& rows, const at::Tensor& piece, int64_t start) {
    EXPECT_TRUE(rows.whole(piece).equal(x));
    const at::Tensor collected = rows.collected(piece.permute({3, 0, 1, 2}), 2);
    EXPECT_EQ(collected.defined(), start == 0);
    if (collected.defined()) {
      EXPECT_TRUE(collected.equal(x.permute({3, 0, 1, 2})));
    }
  });
}

TEST(RowSplit, JoinsTheMomentsOfAllRanks) {
  const at::Tensor x = at::randn({1, 14, 3, 4}).add_(1000).to(at::kDouble);
  const auto moments = [](const at::Tensor& part) {
    const auto [variance, mean] = at::var_mean(part, at::IntArrayRef{0, 1, 2}, /*correction=*/at::Scalar(0));
    return at::stack({mean, variance});
  };
  std::vector<at::Tensor> joined(3);
  on_pieces(x, 3, [&](const RowSplit& rows, const at::Tensor& piece, int64_t start) {
    joined[start == 0 ? 0 : start < 8 ? 1 : 2] = rows.joined_moments(moments(piece));
  });
  EXPECT_TRUE(at::allclose(joined[0], moments(x), 1e-12, 0));
  for (const at::Tensor& each : joined) EXPECT_TRUE(each.equal(joined[0]));
}

}  // namespace
}  // namespace sparsereel::models
