// The sound of a video.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

struct Sound {
  at::Tensor samples = {};    // fp32 CPU [channels, count] in -1..1; undefined if there is no sound
  int64_t sampling_rate = 0;  // samples of a channel in a second
};

}  // namespace sparsereel::models
