// The input and the result of one forward pass of a diffusion transformer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/request/conditioning.h"

namespace sparsereel::models {

/// A picture that the video must show at its start or at its end, for models that take such pictures as tokens.
struct Keyframe {
  at::Tensor latents;  // [B, C, 1, H, W], noised as the model wants it
  bool last = false;   // shown at the end of the video; otherwise at its start
};

/// The input of one forward pass, on the run's device.
struct TransformerInput {
  /// [B, ..] in the run's dtype and the family's layout. If the model takes conditioning latents as channels, they come
  /// last.
  at::Tensor latents;
  Conditioning conditioning;  // B passes, in the run's dtype
  at::Tensor timesteps;       // [B], whole or fractional

  // For models that make sound together with the video; undefined for others.
  at::Tensor sound{};            // [B, rows, C]: the rows of the left channel, then those of the right channel
  at::Tensor sound_timesteps{};  // [B]

  std::vector<Keyframe> keyframes{};  // those of the conditioning, with noise

  /// Returns a copy with all tensors on the device of `options` and in its dtype. Timesteps keep their dtype. With
  /// wide_latents, the latents of video, sound and keyframes are in fp32.
  TransformerInput to(const at::TensorOptions& options, bool wide_latents) const;
};

/// The result of one forward pass.
struct Prediction {
  at::Tensor video;    // in the shape of the latents without conditioning
  at::Tensor sound{};  // in the shape of TransformerInput::sound; undefined if the model makes none

  /// Applies a function from tensor to tensor to each part.
  Prediction each(const auto& function) const {
    return {.video = function(video), .sound = sound.defined() ? function(sound) : at::Tensor()};
  }
};

/// The timesteps of all steps of a denoising.
struct StepTimes {
  std::vector<double> video;
  std::vector<double> sound{};  // one for each step; empty if the model makes no sound
  bool has_keyframes = false;
};

}  // namespace sparsereel::models
