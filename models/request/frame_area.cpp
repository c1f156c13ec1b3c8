// Computes the area of a 16:9 frame from its number of lines.
#include "models/request/frame_area.h"

#include <string_view>

#include "hilbert/read_text.h"

namespace sparsereel::models {

int64_t FrameArea::pixels() const {
  constexpr int64_t kGrid = 32;  // models take widths that are multiples of this: 832 for 480 lines
  return lines * (lines * 16 / 9 / kGrid * kGrid);
}

std::string name(const FrameArea& area) {
  return std::to_string(area.lines) + "p";
}

std::optional<FrameArea> find_frame_area(const std::string& text) {
  // These limits are beyond all real videos. They exclude up to 17 lines, for which the width would be 0, and more than
  // two billion lines, for which pixels() would overflow.
  constexpr int64_t kFewest = 32, kMost = 1 << 20;
  if (!text.ends_with('p') && !text.ends_with('P')) return std::nullopt;
  const auto lines = parse_number<int64_t>(std::string_view(text).substr(0, text.size() - 1));
  if (!lines || *lines < kFewest || *lines > kMost) return std::nullopt;
  return FrameArea{.lines = *lines};
}

}  // namespace sparsereel::models
