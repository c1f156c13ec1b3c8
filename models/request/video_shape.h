// The size of a video.
#pragma once

#include <cstdint>

namespace sparsereel::models {

struct VideoShape {
  int64_t frames = 0, height = 0, width = 0;  // height and width in pixels
};

}  // namespace sparsereel::models
