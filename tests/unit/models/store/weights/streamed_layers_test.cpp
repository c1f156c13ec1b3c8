// Tests where the layers of a model are kept until they are copied to the GPU. tests/gpu tests the copies.
#include "models/store/weights/streamed_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace sparsereel::models {
namespace {

using enum LayerPlace;
using ::testing::Each;
using ::testing::ElementsAre;

TEST(LayerPlaces, SpreadsStreamedLayersEvenly) {
  EXPECT_THAT(layer_places(6, {.layers = 3}), ElementsAre(device, pinned, device, pinned, device, pinned));
  EXPECT_THAT(layer_places(5, {.layers = 2}), ElementsAre(device, device, pinned, device, pinned));
}

TEST(LayerPlaces, HasAllLayersOnTheDeviceOrNone) {
  EXPECT_THAT(layer_places(4, {}), Each(device));
  EXPECT_THAT(layer_places(4, Streaming::all()), Each(pinned));
}

TEST(LayerPlaces, CountsEachPlaceAsAsked) {
  for (int64_t streamed = 0; streamed <= 40; ++streamed)
    for (int64_t from_file = 0; from_file <= streamed; from_file += 3)
      for (int64_t slow = 0; slow <= streamed - from_file; slow += 5) {
        const auto places = layer_places(40, {.layers = streamed, .pageable = slow, .from_file = from_file});
        EXPECT_EQ(std::ranges::count(places, device), 40 - streamed);
        EXPECT_EQ(std::ranges::count(places, file), from_file);
        EXPECT_EQ(std::ranges::count(places, pageable), slow);
        if (streamed < 40) {
          EXPECT_EQ(places.front(), device) << "a step cache runs it alone";
        }
      }
}

}  // namespace
}  // namespace sparsereel::models
