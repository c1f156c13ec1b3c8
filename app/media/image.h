// Pictures that people give. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace sparsereel::app {

/// 8-bit RGB [height, width, 3].
struct Image {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels;
};

/// Of a video, its first frame. Throws Error naming the file where it cannot be read, or in a build without media
/// libraries.
Image read_image(const std::filesystem::path& path);

}  // namespace sparsereel::app
