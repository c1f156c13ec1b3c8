// Heat maps: read back, with the colours of their values in them.
#include <algorithm>
#include <cmath>

#include "app/media/plot.h"
#include "tests/unit/app/media/clips.h"

namespace sparsereel::app {
namespace {

/// Pixels of that colour.
size_t count(const std::vector<uint8_t>& rgb, const std::array<uint8_t, 3>& colour) {
  size_t found = 0;
  for (size_t i = 0; i + 2 < rgb.size(); i += 3)
    found += std::equal(colour.begin(), colour.end(), rgb.begin() + static_cast<ptrdiff_t>(i)) ? 1 : 0;
  return found;
}

TEST(HeatMap, DrawsEachValueInItsColour) {
  const test::TemporaryFolder folder;
  const std::array<uint8_t, 3> pale = {253, 246, 206}, dark = {20, 28, 90};
  const auto pixels = [&](const std::vector<std::vector<double>>& values) {
    write_heat_maps(folder / "map.png", {{.title = "t", .rows = "layer", .columns = "step", .values = values}});
    return decode_video(folder / "map.png").frames.at(0);
  };
  const std::vector<uint8_t> empty = pixels({{std::nan(""), std::nan("")}});
  const std::vector<uint8_t> drawn = pixels({{0, 1}});
  constexpr size_t cell = 27 * 27;
  EXPECT_EQ(count(drawn, pale), count(empty, pale) + cell);
  EXPECT_EQ(count(drawn, dark), count(empty, dark) + cell);
}

TEST(HeatMap, TakesManyAndLargeMaps) {
  const test::TemporaryFolder folder;
  const std::vector<std::vector<double>> values(48, std::vector<double>(1000, 0.5));
  const HeatMap map{.title = std::string(200, 't'), .rows = "layer", .columns = "step", .values = values};
  write_heat_maps(folder / "map.png", {map, map, {}});
  EXPECT_GT(decode_video(folder / "map.png").width, 6000);
}

TEST(HeatMap, NeedsAPng) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(test::throws_error([&] { write_heat_maps(folder / "map.jpg", {}); }, {"map.jpg"}));
}

}  // namespace
}  // namespace sparsereel::app
