// The pictures that a video is made from.
#pragma once

#include <memory>

namespace sparsereel::models {

struct Picture;

/// Pictures that a video begins and ends with, of any size; null: none.
struct Images {
  std::shared_ptr<const Picture> first{}, last{};
};

}  // namespace sparsereel::models
