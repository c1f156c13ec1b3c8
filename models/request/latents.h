// The latents of a video and of its sound.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace sparsereel::models {

struct Latents {
  // NOLINTNEXTLINE(google-explicit-constructor): most models have latents of a video alone
  Latents(at::Tensor of_video = {}, at::Tensor of_sound = {})
      : video(std::move(of_video)), sound(std::move(of_sound)) {}

  at::Tensor video;  // in the model's layout
  at::Tensor sound;  // [1, rows, C]: rows of the left channel, then of the right one; undefined if there is no sound

  bool defined() const { return video.defined(); }
};

}  // namespace sparsereel::models
