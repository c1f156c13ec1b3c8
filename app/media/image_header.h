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
  int64_t height = 0, width = 0;  // as stored in the file; 0 if the header does not say
  int components = 3;             // color components of a JPEG
  bool animated = false;          // a WebP or APNG with several pictures
  int orientation = 1;            // EXIF's 1 to 8: how viewers turn and mirror the stored picture; 1: not at all
};

/// Recognizes a format by the first bytes of the file. Returns nothing for a format that ImageFormat does not list.
std::optional<ImageFormat> image_format(std::span<const std::byte> file);

/// Reads the header of a whole file of that format. Damage is left for the decoder to report.
ImageHeader read_image_header(ImageFormat format, std::span<const std::byte> file);

/// Returns true for a TIFF, or a still picture in HEIF's container (AVIF, HEIC), by the first 16 bytes.
bool is_tiff_or_heif(std::span<const std::byte> file);

/// Returns the orientation of a file that passes is_tiff_or_heif(), as in ImageHeader. It comes from the tag of a
/// TIFF's first picture, or from the properties irot and imir of HEIF's primary item (ISO/IEC 23008-12). Some versions
/// of FFmpeg ignore these, so this function reads them.
int container_orientation(std::span<const std::byte> file);

}  // namespace sparsereel::app
