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
  int64_t height = 0, width = 0;  // as stored in the file; 0 if it does not say
  int components = 3;             // of a JPEG
  bool animated = false;          // several pictures, in WebP or APNG
  int orientation = 1;            // EXIF's, 1 to 8: where the first row and column of the visible picture lie
};

/// Returns the format by the first bytes, or nothing for any other format.
std::optional<ImageFormat> image_format(std::span<const std::byte> file);

/// Reads the header of a whole file of that format. Damage is left for the decoder to report.
ImageHeader read_image_header(ImageFormat format, std::span<const std::byte> file);

/// Returns true for a TIFF, or a still picture in HEIF's container (AVIF, HEIC), by the first 16 bytes.
bool is_tiff_or_heif(std::span<const std::byte> file);

/// Returns the orientation of such a file, as in ImageHeader. It comes from the tag of a TIFF's first picture, or from
/// the properties irot and imir of HEIF's primary item (ISO/IEC 23008-12). Some versions of FFmpeg's readers ignore
/// these.
int container_orientation(std::span<const std::byte> file);

}  // namespace sparsereel::app
