// Pictures that people give. No torch.
#pragma once

#include <filesystem>

#include "models/image/resample.h"

namespace sparsereel::app {

using Image = models::Picture;

/// Reads a picture as it is seen: turned as its file says, without alpha, 8 bits. Of what holds several pictures (a
/// video, an APNG, a .safetensors of frames), the last one. Without media libraries, .ppm and .safetensors alone.
/// Throws Error naming the file where it cannot be read, is CMYK, larger than kMostImagePixels, or a sequence of files.
Image read_image(const std::filesystem::path& path);

/// Larger ones are refused before they are decoded.
using models::kMostImagePixels;

}  // namespace sparsereel::app
