// The readers behind read_image(), and what they share. Internal to app/media.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>

#include "app/media/image.h"
#include "app/media/image_header.h"

namespace sparsereel::app {

inline constexpr const char* kImageRemedy = "name a PNG, JPEG, WebP or PPM file, or a video to go on from";

/// The pixels as they lie in the file. Throws Error, in a build without media libraries, too.
Image decode_image(const std::filesystem::path& path, ImageFormat format, std::span<const std::byte> file);

/// The time in which the last picture of a file has to be found. A file of a stranger may be made to take for ever.
inline constexpr std::chrono::seconds kMostSearch{60};

/// The last picture of whatever FFmpeg reads, turned by `orientation` (as in ImageHeader), or as FFmpeg says where that
/// is nothing. Throws as decode_image(), and where the search takes longer than `limit`.
Image decode_last_frame(const std::filesystem::path& path, std::optional<int> orientation,
                        std::chrono::seconds limit = kMostSearch);

/// Throws Error unless there are pixels, and no more than kMostImagePixels.
void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width);

/// `orientation`: as in ImageHeader.
Image turned(const Image& image, int orientation);

}  // namespace sparsereel::app
