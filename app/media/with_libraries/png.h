// Encodes PNGs one after the other with FFmpeg. Internal to app/media.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "app/media/with_libraries/ffmpeg.h"

namespace sparsereel::app {

class PngEncoder {
 public:
  /// `target` is the file that errors name.
  PngEncoder(int width, int height, std::filesystem::path target);
  /// Encodes RGB `pixels` [height, width, 3] and returns the bytes of a PNG file.
  std::vector<uint8_t> encode(std::span<const uint8_t> pixels);

 private:
  std::filesystem::path target_;
  ffmpeg::CodecContext encoder_;
  ffmpeg::Frame frame_;
};

/// Writes a picture, RGB [height, width, 3]. The file appears whole or not at all.
void write_png(const std::filesystem::path& path, int width, int height, const std::vector<uint8_t>& pixels);

}  // namespace sparsereel::app
