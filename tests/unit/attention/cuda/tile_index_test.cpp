// Tests how query tiles of all heads are numbered, and that a number gives its tile back.
#include "attention/cuda/tile_index.h"

#include <gtest/gtest.h>

#include <set>

namespace sparsereel::attention::cuda {
namespace {

TEST(TileIndex, NumbersEveryTileOnceAndInverts) {
  for (const int listed : {0, 1, 5, 7}) {  // 0 in causal calls; otherwise the number of query tiles without text
    const TileCounts counts{.batch_heads = 3, .query_tiles = 7, .listed_tiles = listed};
    std::set<int64_t> lists;
    for (int index = 0; index < 21; ++index) {
      const TileIndex tile(counts, index);
      EXPECT_EQ(tile.index(counts), index) << listed;
      lists.insert(tile.list(counts));
    }
    EXPECT_EQ(lists.size(), 21U);
    EXPECT_EQ(*lists.rbegin(), 20);
  }
}

TEST(TileIndex, PutsTilesWithTextFirst) {
  const TileCounts counts{.batch_heads = 2, .query_tiles = 4, .listed_tiles = 3};
  EXPECT_EQ(TileIndex(counts, 0).tile, 3);
  EXPECT_EQ(TileIndex(counts, 1).tile, 3);
  EXPECT_EQ(TileIndex(counts, 2).tile, 2);
}

}  // namespace
}  // namespace sparsereel::attention::cuda
