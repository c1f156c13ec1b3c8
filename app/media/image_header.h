// Reads sizes and orientation from the headers of pictures. No torch, no libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sparsereel::app {

enum class ImageFormat { jpeg, png, webp };

struct ImageHeader {
  ImageFormat format = ImageFormat::jpeg;
  int64_t height = 0, width = 0;  // as they lie in the file; 0: it does not say
  int components = 3;             // of a JPEG
  bool animated = false;          // several pictures: WebP's, or APNG's
  int orientation = 1;            // EXIF's, 1 to 8: where the first row and column of what is seen lie
};

/// By the first bytes; nothing of any other format.
std::optional<ImageFormat> image_format(std::span<const std::byte> file);

/// Of a whole file of that format. What is damaged is left to whoever decodes it.
ImageHeader read_image_header(ImageFormat format, std::span<const std::byte> file);

/// Returns true for a TIFF, and for a still picture in HEIF's container (AVIF, HEIC), by the first 16 bytes.
bool is_tiff_or_heif(std::span<const std::byte> file);

/// The orientation of such a file, as in ImageHeader: by the tag of a TIFF's first picture, or by the properties irot
/// and imir of HEIF's primary item (ISO/IEC 23008-12). FFmpeg's readers ignore these, or not, by their version.
int container_orientation(std::span<const std::byte> file);

}  // namespace sparsereel::app
