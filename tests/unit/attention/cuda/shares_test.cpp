// Tests how the Hopper kernel divides its last query tiles into one equal share per processor. This is plain arithmetic
// and needs no GPU.
#include "attention/cuda/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sparsereel::attention::cuda {
namespace {

struct Piece {
  int slot;
  ListRange part;
};

/// Returns the pieces into which each tile is cut, in the order of the shares that compute them.
std::vector<std::vector<Piece>> pieces(const Shares& shares, int length, int stage) {
  std::vector<std::vector<Piece>> tiles(static_cast<size_t>(shares.tiles));
  for (int share = 0; share < shares.processors; ++share)
    for (int tile = shares.first_tile(share); tile <= shares.last_tile(share); ++tile)
      tiles.at(static_cast<size_t>(tile))
          .push_back({Shares::slot(share, tile), shares.part(share, tile, length, stage)});
  return tiles;
}

constexpr Shares kCases[] = {{132, 1}, {132, 17}, {132, 48}, {132, 66}, {132, 72}, {132, 131}, {114, 50}, {7, 3}};

TEST(Shares, CoverTheListOfATileOnceAndInOrder) {
  for (const Shares& shares : kCases) {
    for (const int length : {1, 2, 5, 70, 700, 1182}) {
      for (const int stage : {2, 4}) {
        SCOPED_TRACE(::testing::Message() << shares.processors << " processors, " << shares.tiles << " tiles, "
                                          << length << " entries in stages of " << stage);
        for (const std::vector<Piece>& tile : pieces(shares, length, stage)) {
          int next = 0;
          for (const Piece& piece : tile) {
            ASSERT_EQ(piece.part.begin, next);
            ASSERT_GE(piece.part.end, piece.part.begin);
            ASSERT_TRUE(piece.part.begin % stage == 0 || piece.part.begin == length);
            next = piece.part.end;
          }
          ASSERT_EQ(next, length);
        }
      }
    }
  }
}

TEST(Shares, PutThePartsOfATileIntoAdjacentSlots) {
  for (const Shares& shares : kCases) {
    int next = 0;
    const auto tiles = pieces(shares, 700, 2);
    for (int tile = 0; tile < shares.tiles; ++tile) {
      const std::vector<Piece>& mine = tiles.at(static_cast<size_t>(tile));
      ASSERT_EQ(mine.front().slot, shares.first_slot(tile));
      ASSERT_EQ(mine.back().slot, shares.last_slot(tile));
      for (size_t i = 0; i < mine.size(); ++i) ASSERT_EQ(mine[i].slot, mine.front().slot + static_cast<int>(i));
      ASSERT_GE(mine.front().slot, next);
      next = mine.back().slot + 1;
    }
    ASSERT_EQ(next, shares.slots());
  }
}

TEST(Shares, DifferByAtMostTwoStagesAndSpanAtMostTwoTiles) {
  constexpr int kLength = 700, kStage = 2;
  for (const Shares& shares : kCases) {
    int least = shares.tiles * kLength, most = 0;
    for (int share = 0; share < shares.processors; ++share) {
      ASSERT_LE(shares.last_tile(share) - shares.first_tile(share), 1);
      int entries = 0;
      for (int tile = shares.first_tile(share); tile <= shares.last_tile(share); ++tile) {
        const ListRange part = shares.part(share, tile, kLength, kStage);
        entries += part.end - part.begin;
      }
      least = std::min(least, entries);
      most = std::max(most, entries);
    }
    EXPECT_LE(most - least, 2 * kStage);
  }
}

}  // namespace
}  // namespace sparsereel::attention::cuda
