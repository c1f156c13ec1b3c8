// Tests the single retry after decoding has run out of GPU memory. The retry decodes in tiles if tiles are allowed. If
// not, there is a retry only if memory could be freed.
#include "models/engine/tile_retry.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

/// A decoder that records its calls. Until memory has been freed, it runs out of memory without tiles and, if
/// `tiles_help` is false, with tiles, too.
struct Decoder {
  bool tiles_help = true;
  bool something_to_free = false;
  std::vector<bool> calls = {};
  int rooms_made = 0;

  void run(bool& tiled, bool may_tile) {
    work_or_retry_tiled(
        tiled, may_tile,
        [this](bool in_tiles) {
          calls.push_back(in_tiles);
          const bool roomy = rooms_made > 0 && something_to_free;
          if (!roomy && (!in_tiles || !tiles_help)) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory");
        },
        [this] {
          ++rooms_made;
          return something_to_free;
        });
  }
};

TEST(DecodeRetry, TilesAfterRunningOutOfMemory) {
  Decoder decoder;
  bool tiled = false;
  decoder.run(tiled, true);
  EXPECT_TRUE(tiled);
  EXPECT_EQ(decoder.calls, (std::vector<bool>{false, true}));
  EXPECT_EQ(decoder.rooms_made, 1);
}

TEST(DecodeRetry, RespectsTheUsersTilingChoice) {
  Decoder decoder;
  bool tiled = false;
  EXPECT_THROW(decoder.run(tiled, false), c10::OutOfMemoryError);
  EXPECT_FALSE(tiled);
  EXPECT_EQ(decoder.calls.size(), 1U);
}

TEST(DecodeRetry, RetriesWithTheSameTilingAfterFreeingMemory) {
  for (const bool in_tiles : {false, true}) {
    Decoder decoder{.tiles_help = false, .something_to_free = true};
    bool tiled = in_tiles;
    decoder.run(tiled, /*may_tile=*/in_tiles);
    EXPECT_EQ(tiled, in_tiles);
    EXPECT_EQ(decoder.calls, (std::vector<bool>{in_tiles, in_tiles}));
  }
}

TEST(DecodeRetry, GivesUpIfTilesDoNotFitEither) {
  Decoder decoder{.tiles_help = false};
  bool tiled = false;
  EXPECT_THROW(decoder.run(tiled, true), c10::OutOfMemoryError);
  EXPECT_EQ(decoder.calls.size(), 2U);
}

TEST(DecodeRetry, WithoutTilesHappensOnlyAfterFreeingMemory) {
  int calls = 0;
  const auto work = [&] {
    if (++calls == 1) TORCH_CHECK_WITH(OutOfMemoryError, false, "no room");
  };
  work_or_retry("decoding", "choose a smaller size or fewer frames", work, [] { return true; });
  EXPECT_EQ(calls, 2);
  calls = 0;
  EXPECT_TRUE(test::throws_error(
      [&] { work_or_retry("decoding", "choose a smaller size or fewer frames", work, [] { return false; }); },
      {"decoding ran out of GPU memory: no room"}));
  EXPECT_EQ(calls, 1) << "the same work would fail again";
}

}  // namespace
}  // namespace sparsereel::models
