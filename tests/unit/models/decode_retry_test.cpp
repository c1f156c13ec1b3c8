// Decoding that runs out of GPU memory is done again in tiles, once, and only where that was left open.
#include "models/decode_retry.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace sparsereel::models {
namespace {

/// Decodes that fail untiled (or always), and what was called.
struct Decoder {
  bool tiles_help = true;
  std::vector<bool> calls = {};
  int rooms_made = 0;

  at::Tensor run(bool& tiled, bool may_tile) {
    return decode_or_retry_tiled(
        tiled, may_tile,
        [this](bool in_tiles) {
          calls.push_back(in_tiles);
          if (!in_tiles || !tiles_help) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory");
          return at::ones({1});
        },
        [this] { ++rooms_made; });
  }
};

TEST(DecodeRetry, TilesAfterRunningOutOfMemory) {
  Decoder decoder;
  bool tiled = false;
  EXPECT_TRUE(decoder.run(tiled, true).defined());
  EXPECT_TRUE(tiled);
  EXPECT_EQ(decoder.calls, (std::vector<bool>{false, true}));
  EXPECT_EQ(decoder.rooms_made, 1);
}

TEST(DecodeRetry, LeavesTheChoiceOfTheUserAlone) {
  Decoder decoder;
  bool tiled = false;
  EXPECT_THROW(decoder.run(tiled, false), c10::OutOfMemoryError);
  EXPECT_FALSE(tiled);
  EXPECT_EQ(decoder.calls.size(), 1U);
}

TEST(DecodeRetry, GivesUpWhereTilesDoNotFitEither) {
  Decoder decoder{.tiles_help = false};
  bool tiled = false;
  EXPECT_THROW(decoder.run(tiled, true), c10::OutOfMemoryError);
  EXPECT_EQ(decoder.calls.size(), 2U);
}

}  // namespace
}  // namespace sparsereel::models
