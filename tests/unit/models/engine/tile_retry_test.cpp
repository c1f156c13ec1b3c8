// What runs out of GPU memory is done again, once: in tiles where that was left open, else where memory was freed.
#include "models/engine/tile_retry.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <vector>

namespace sparsereel::models {
namespace {

/// Work that fails untiled (or always), unless something was freed that is enough; and what was called.
struct Work {
  bool tiles_help = true;
  bool something_to_free = false;
  std::vector<bool> calls = {};
  int rooms_made = 0;

  bool run(bool& tiled, bool may_tile) {
    bool done = false;
    work_or_retry_tiled(
        tiled, may_tile,
        [this, &done](bool in_tiles) {
          calls.push_back(in_tiles);
          const bool roomy = rooms_made > 0 && something_to_free;
          if (!roomy && (!in_tiles || !tiles_help)) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory");
          done = true;
        },
        [this] {
          ++rooms_made;
          return something_to_free;
        });
    return done;
  }
};

TEST(TileRetry, TilesAfterRunningOutOfMemory) {
  Work work;
  bool tiled = false;
  EXPECT_TRUE(work.run(tiled, true));
  EXPECT_TRUE(tiled);
  EXPECT_EQ(work.calls, (std::vector<bool>{false, true}));
  EXPECT_EQ(work.rooms_made, 1);
}

TEST(TileRetry, LeavesTheChoiceOfTheUserAlone) {
  Work work;
  bool tiled = false;
  EXPECT_THROW(work.run(tiled, false), c10::OutOfMemoryError);
  EXPECT_FALSE(tiled);
  EXPECT_EQ(work.calls.size(), 1U);
}

TEST(TileRetry, WorksTheSameWayWhereMemoryWasFreed) {
  for (const bool in_tiles : {false, true}) {
    Work work{.tiles_help = false, .something_to_free = true};
    bool tiled = in_tiles;
    EXPECT_TRUE(work.run(tiled, /*may_tile=*/in_tiles));
    EXPECT_EQ(tiled, in_tiles);
    EXPECT_EQ(work.calls, (std::vector<bool>{in_tiles, in_tiles}));
  }
}

TEST(TileRetry, GivesUpWhereTilesDoNotFitEither) {
  Work work{.tiles_help = false};
  bool tiled = false;
  EXPECT_THROW(work.run(tiled, true), c10::OutOfMemoryError);
  EXPECT_EQ(work.calls.size(), 2U);
}

}  // namespace
}  // namespace sparsereel::models
