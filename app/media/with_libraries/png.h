// One PNG after the other through FFmpeg's encoder. Internal to app/media.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "app/media/with_libraries/ffmpeg.h"

namespace sparsereel::app {

class PngEncoder {
 public:
  /// `target` is what errors name.
  PngEncoder(int width, int height, std::filesystem::path target);
  /// pixels: RGB [height, width, 3]; returns the bytes of a PNG file.
  std::vector<uint8_t> encode(std::span<const uint8_t> pixels);

 private:
  std::filesystem::path target_;
  ffmpeg::CodecContext encoder_;
  ffmpeg::Frame frame_;
};

/// One picture, RGB [height, width, 3], as a file that appears whole or not at all.
void write_png(const std::filesystem::path& path, int width, int height, const std::vector<uint8_t>& pixels);

}  // namespace sparsereel::app
