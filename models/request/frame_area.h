// The area of a frame, without its shape, named by a number of lines ("720p"). No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sparsereel::models {

/// The area of a 16:9 frame with this many lines: "480p" is the area of 832x480, "720p" of 1280x720.
struct FrameArea {
  int64_t lines = 0;

  int64_t pixels() const;
  bool operator==(const FrameArea&) const = default;
};
/// Returns the number of lines and "p": "720p".
std::string name(const FrameArea& area);
/// Parses a text such as "720p" or "720P". Returns nothing for any other text, and for fewer than 32 or more than 2^20
/// lines.
std::optional<FrameArea> find_frame_area(const std::string& text);

}  // namespace sparsereel::models
