// The input and the result of one forward pass of a diffusion transformer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/request/conditioning.h"

namespace sparsereel::models {

/// A picture that the video must show at its start or at its end. For models that take such pictures as tokens.
struct Keyframe {
  at::Tensor latents;  // [B, C, 1, H, W], with as much noise as the model expects
  bool last = false;   // true if shown at the end of the video, false if at its start
};

/// The input of one forward pass. B is the number of passes that run as one batch.
struct TransformerInput {
  /// [B, ..] in the family's layout. If the model takes conditioning latents as channels, they are the last channels.
  at::Tensor latents;
  Conditioning conditioning;  // of B passes
  at::Tensor timesteps;       // [B]; may be fractional

  // For models that make sound together with the video; undefined for others.
  at::Tensor sound{};            // [B, rows, C]: the rows of the left channel, then those of the right channel
  at::Tensor sound_timesteps{};  // [B]

  std::vector<Keyframe> keyframes{};  // the conditioning's keyframes, with noise

  /// Returns a copy with all tensors on the device of `options` and in the dtype of `options`. Timesteps keep their
  /// dtype. With wide_latents, the latents of video, sound and keyframes are converted to fp32 instead.
  TransformerInput to(const at::TensorOptions& options, bool wide_latents) const;
};

/// The result of one forward pass.
struct Prediction {
  at::Tensor video;    // in the shape of the latents without conditioning
  at::Tensor sound{};  // in the shape of TransformerInput::sound; undefined if the model makes no sound

  /// Returns the prediction with `function`, from tensor to tensor, applied to video and sound.
  Prediction each(const auto& function) const {
    return {.video = function(video), .sound = sound.defined() ? function(sound) : at::Tensor()};
  }
};

/// The timesteps of all steps of a denoising, or of a single forward pass.
struct StepTimes {
  std::vector<double> video;    // one for each step
  std::vector<double> sound{};  // one for each step; empty if the model makes no sound
  bool has_keyframes = false;
};

}  // namespace sparsereel::models
