// The area of a frame without its shape, as people name it. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sparsereel::models {

/// That of a frame of so many lines, 16 to 9: "480p" is that of 832x480, "720p" that of 1280x720.
struct FrameArea {
  int64_t lines = 0;

  int64_t pixels() const;
  bool operator==(const FrameArea&) const = default;
};
/// "720p"
std::string name(const FrameArea& area);
/// Of "720p"; nothing of any other text.
std::optional<FrameArea> find_frame_area(const std::string& text);

}  // namespace sparsereel::models
