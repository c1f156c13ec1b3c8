// Reads pictures that users name. No torch.
#pragma once

#include <filesystem>

#include "models/image/resample.h"

namespace sparsereel::app {

using Image = models::Picture;

/// Reads a picture as viewers show it: turned as the file says, without alpha, 8 bits. From a file with several
/// pictures (a video, an APNG, a .safetensors of frames) it reads the last. Without media libraries and an ffmpeg
/// program, only .ppm and .safetensors can be read. Throws Error naming the file if it cannot be read, is CMYK, is
/// larger than kMostImagePixels, or is a sequence of files.
Image read_image(const std::filesystem::path& path);

/// Larger pictures are refused before they are decoded.
using models::kMostImagePixels;

}  // namespace sparsereel::app
