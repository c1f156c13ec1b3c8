// Draws text and shrinks pictures, for contact sheets. with_libraries/ uses OpenCV, without_libraries/ has a font of
// its own. Internal to app/media.
#pragma once

#include <cstdint>
#include <string>

#include "app/media/image.h"

namespace sparsereel::app {

/// Returns the width in pixels of a line of ASCII.
int text_width(const std::string& line);

/// Draws a line of ASCII in black. The first letter begins at column `left` and stands on row `baseline`, both in
/// pixels.
void draw_text(Image& picture, const std::string& line, int64_t left, int64_t baseline);

/// Returns the picture scaled down to this size in pixels.
Image shrunk(const Image& picture, int64_t height, int64_t width);

}  // namespace sparsereel::app
