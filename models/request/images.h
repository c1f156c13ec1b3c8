// The pictures from which a video is made.
#pragma once

#include <memory>

namespace sparsereel::models {

struct Picture;

/// First and last picture of a video, of any size; null if not given.
struct Images {
  std::shared_ptr<const Picture> first{}, last{};
};

}  // namespace sparsereel::models
