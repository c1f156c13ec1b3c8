// How large a video is.
#pragma once

#include <cstdint>

namespace sparsereel::models {

struct VideoShape {
  int64_t frames = 0, height = 0, width = 0;  // the last two in pixels
};

}  // namespace sparsereel::models
