// Tests token orders: every order is a permutation with the right inverse, the Hilbert order is the expected one, and
// the cache of orders is thread-safe.
#include "hilbert/token_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "hilbert/curve.h"
#include "hilbert/error.h"

namespace sparsereel::hilbert {
namespace {

using ::testing::ElementsAre;

constexpr TokenOrder kOrders[] = {TokenOrder::hilbert, TokenOrder::native, TokenOrder::time_major, TokenOrder::morton,
                                  TokenOrder::random};

constexpr Grid kGrids[] = {{1, 1, 1},  {1, 1, 7},  {1, 7, 1},    {7, 1, 1},   {1, 5, 3},   {3, 1, 5},   {5, 3, 1},
                           {2, 2, 2},  {3, 3, 3},  {5, 7, 11},   {13, 2, 17}, {4, 6, 9},   {9, 16, 16}, {2, 31, 3},
                           {1, 64, 2}, {23, 1, 2}, {13, 30, 45}, {8, 8, 8},   {2, 3, 101}, {100, 2, 3}};

int64_t hilbert_jumps(int64_t w, int64_t h, int64_t t) {
  const Grid grid{.frames = t, .height = h, .width = w};
  return locality(permutation(TokenOrder::hilbert, grid), grid).non_unit_steps;
}

TEST(TokenOrder, VisitsEveryTokenOnceAndInverts) {
  for (const Grid& grid : kGrids) {
    for (const TokenOrder order : kOrders) {
      const Permutation& p = permutation(order, grid);
      ASSERT_EQ(static_cast<int64_t>(p.order.size()), grid.size());
      ASSERT_EQ(p.inverse.size(), p.order.size());
      std::set<int64_t> seen(p.order.begin(), p.order.end());
      EXPECT_EQ(static_cast<int64_t>(seen.size()), grid.size()) << name(order);
      EXPECT_EQ(*seen.begin(), 0);
      EXPECT_EQ(*seen.rbegin(), grid.size() - 1);
      for (size_t i = 0; i < p.order.size(); ++i)
        ASSERT_EQ(p.inverse[static_cast<size_t>(p.order[i])], static_cast<int64_t>(i));
    }
  }
}

TEST(TokenOrder, VisitsEveryTokenOfAllSmallGrids) {
  for (int64_t w = 1; w <= 9; ++w)
    for (int64_t h = 1; h <= 9; ++h)
      for (int64_t d = 1; d <= 9; ++d) {
        const std::vector<Cell> cells = gilbert_curve(w, h, d);
        ASSERT_EQ(static_cast<int64_t>(cells.size()), w * h * d);
        EXPECT_EQ(std::set<Cell>(cells.begin(), cells.end()).size(), cells.size()) << w << "x" << h << "x" << d;
        EXPECT_EQ(cells.front(), (Cell{0, 0, 0}));
        for (const auto& [x, y, z] : cells) ASSERT_TRUE(x >= 0 && x < w && y >= 0 && y < h && z >= 0 && z < d);
      }
}

TEST(HilbertOrder, HasAsManyNonUnitStepsAsTheReferenceCurve) {
  EXPECT_EQ(hilbert_jumps(45, 30, 13), 151);
  EXPECT_EQ(hilbert_jumps(53, 30, 28), 53);
  EXPECT_EQ(hilbert_jumps(52, 30, 21), 76);
  EXPECT_EQ(hilbert_jumps(80, 45, 21), 360);
}

TEST(HilbertOrder, StepsToANeighborEverywhereInEvenBoxes) {
  for (const auto& [w, h, t] :
       {Cell{8, 8, 8}, {16, 16, 16}, {4, 4, 4}, {2, 2, 2}, {64, 1, 1}, {16, 16, 1}, {20, 12, 2}})
    EXPECT_EQ(hilbert_jumps(w, h, t), 0) << w << "x" << h << "x" << t;
}

TEST(HilbertOrder, TakesTheAxesAsWidthHeightTime) {
  // One frame, 4 tokens wide and 2 high. The expected curve was drawn by hand: it goes along the height, one step to
  // the side and back, twice. The index in native order is h * 4 + w.
  EXPECT_THAT(permutation(TokenOrder::hilbert, {.frames = 1, .height = 2, .width = 4}).order,
              ElementsAre(0, 4, 5, 1, 2, 6, 7, 3));
  const Grid grid{.frames = 9, .height = 16, .width = 16};
  const std::vector<Cell> curve = gilbert_curve(16, 16, 9);
  const Permutation& p = permutation(TokenOrder::hilbert, grid);
  for (size_t i = 0; i < curve.size(); ++i) ASSERT_EQ(p.order[i], (curve[i][2] * 16 + curve[i][1]) * 16 + curve[i][0]);
}

TEST(TokenOrder, MatchesHandMadeOrders) {
  const Grid grid{.frames = 2, .height = 2, .width = 3};
  EXPECT_THAT(permutation(TokenOrder::native, grid).order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(permutation(TokenOrder::time_major, grid).order, ElementsAre(0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11));
  EXPECT_THAT(permutation(TokenOrder::morton, grid).order, ElementsAre(0, 1, 3, 4, 6, 7, 9, 10, 2, 5, 8, 11));
}

TEST(MortonOrder, SortsByInterleavedBits) {
  const Grid grid{.frames = 5, .height = 6, .width = 11};
  const auto code = [&](int64_t native) {
    const int64_t w = native % 11, h = native / 11 % 6, t = native / 66;
    int64_t result = 0;
    for (int bit = 0; bit < 5; ++bit)
      result |= (w >> bit & 1) << (3 * bit) | (h >> bit & 1) << (3 * bit + 1) | (t >> bit & 1) << (3 * bit + 2);
    return result;
  };
  const Permutation& p = permutation(TokenOrder::morton, grid);
  for (size_t i = 1; i < p.order.size(); ++i) EXPECT_LT(code(p.order[i - 1]), code(p.order[i]));
}

TEST(RandomOrder, IsTheSameShuffleOnEveryPlatform) {
  EXPECT_THAT(permutation(TokenOrder::random, {.frames = 1, .height = 2, .width = 4}).order,
              ElementsAre(7, 0, 2, 3, 6, 5, 4, 1));
}

TEST(TokenOrder, MakesMoreCompactBlocksWithHilbertThanWithTimeMajorOrRandom) {
  const Grid grid{.frames = 9, .height = 16, .width = 16};
  const auto box = [&](TokenOrder order) { return locality(permutation(order, grid), grid).mean_bounding_box; };
  EXPECT_LT(box(TokenOrder::hilbert), box(TokenOrder::time_major));
  EXPECT_LT(box(TokenOrder::time_major), box(TokenOrder::random));
  EXPECT_DOUBLE_EQ(box(TokenOrder::native), 128);  // blocks of 128 tokens are eight rows of one frame
}

TEST(Locality, CountsNonUnitStepsAndBoundingBoxes) {
  const Grid grid{.frames = 1, .height = 2, .width = 3};
  const Locality native = locality(permutation(TokenOrder::native, grid), grid, 2);
  EXPECT_EQ(native.non_unit_steps, 1);                  // only from the end of row 0 to the start of row 1
  EXPECT_DOUBLE_EQ(native.mean_bounding_box, 10. / 3);  // boxes of 2, 6 and 2 tokens
  // The boxes have 6 and 2 tokens.
  EXPECT_DOUBLE_EQ(locality(permutation(TokenOrder::native, grid), grid, 4).mean_bounding_box, 4);
}

TEST(TokenOrder, CachesOnePermutationForAllThreads) {
  const Grid grid{.frames = 7, .height = 19, .width = 23};
  std::vector<const Permutation*> seen(8);
  std::vector<std::thread> threads;
  for (auto& slot : seen) {
    threads.emplace_back([&slot, &grid] {
      for (const TokenOrder order : kOrders) permutation(order, {grid.frames, grid.height, grid.width});
      slot = &permutation(TokenOrder::hilbert, grid);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Permutation* p : seen) EXPECT_EQ(p, seen[0]);
}

TEST(TokenOrder, ParsesItsOwnNamesAndRefusesOthers) {
  for (const TokenOrder order : kOrders) EXPECT_EQ(parse_token_order(name(order)), order);
  try {
    parse_token_order("peano");
    FAIL() << "accepted an unknown name";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "token_order peano: one of hilbert, native, time-major, morton, random is needed");
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  }
}

TEST(TokenOrder, RefusesEmptyAndHugeGrids) {
  for (const Grid& grid : {Grid{0, 1, 1}, Grid{1, -3, 1}, Grid{1, 1, 0}})
    EXPECT_THROW(permutation(TokenOrder::native, grid), Error);
  for (const Grid& grid : {Grid{2048, 1024, 1024}, Grid{int64_t{1} << 40, int64_t{1} << 40, 2}})
    EXPECT_THROW(permutation(TokenOrder::native, grid), Error);
}

TEST(Locality, RefusesAPermutationOfAnotherGrid) {
  const Grid grid{.frames = 1, .height = 2, .width = 3};
  const Permutation& p = permutation(TokenOrder::native, grid);
  EXPECT_THROW(locality(p, {.frames = 1, .height = 2, .width = 4}), Error);
  EXPECT_THROW(locality(p, grid, 0), Error);
}

}  // namespace
}  // namespace sparsereel::hilbert
