// The readers behind read_image() and their shared code. Internal to app/media.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>

#include "app/media/image.h"
#include "app/media/image_header.h"

namespace sparsereel::app {

inline constexpr const char* kImageRemedy = "name a PNG, JPEG, WebP or PPM file, or a video to go on from";

/// Decodes the pixels as stored in the file. Throws Error, also in a build without media libraries.
Image decode_image(const std::filesystem::path& path, ImageFormat format, std::span<const std::byte> file);

/// Time limit for finding the last picture of a file. A malicious file may be made so that the search never ends.
inline constexpr std::chrono::seconds kMostSearch{60};

/// Returns the last picture of any file that FFmpeg reads. Turns it by `orientation` (as in ImageHeader), or as FFmpeg
/// says if unset. Throws like decode_image(), and if the search takes longer than `limit`.
Image decode_last_frame(const std::filesystem::path& path, std::optional<int> orientation,
                        std::chrono::seconds limit = kMostSearch);

/// Throws Error unless there are pixels, and at most kMostImagePixels.
void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width);

/// Returns the image turned upright. `orientation` is as in ImageHeader.
Image turned(const Image& image, int orientation);

}  // namespace sparsereel::app
