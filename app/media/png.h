// Encodes PNGs. Internal to app/media.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

namespace sparsereel::app {

/// Encodes RGB pixels [height, width, 3], one picture after the other, and returns the bytes of a PNG file each time.
using PngEncoder = std::function<std::vector<uint8_t>(std::span<const uint8_t> pixels)>;

/// `target` is the file that errors name. with_libraries/ encodes with FFmpeg, without_libraries/ with zlib.
PngEncoder png_encoder(int width, int height, const std::filesystem::path& target);

/// Writes a picture, RGB [height, width, 3]. The file appears whole or not at all.
void write_png(const std::filesystem::path& path, int width, int height, const std::vector<uint8_t>& pixels);

}  // namespace sparsereel::app
