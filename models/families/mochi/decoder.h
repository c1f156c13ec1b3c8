// The decoder of diffusers' AutoencoderKLMochi: its weights, and a function that decodes latent frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/families/mochi/vae_config.h"
#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/vae/causal_conv3d.h"
#include "models/vae/group_norm.h"
#include "models/vae/resnet.h"

namespace sparsereel::models {

/// A matrix product that expands each pixel to a box of frames x side x side pixels.
struct MochiExpansion {
  /// [out x frames x side x side, in]; finish() reorders the rows so that all channels of a pixel follow each other.
  Linear proj;
  int64_t frames = 1, side = 1, out = 0;

  void weights(const Visit& visit, const std::string& name, int64_t in);
};

struct MochiLevel {
  std::vector<ResnetBlock<GroupNorm>> blocks;
  std::optional<MochiExpansion> expansion;  // in all but the last level
};

struct MochiDecoder {
  Linear conv_in;                              // [widest, latent channels]
  std::vector<ResnetBlock<GroupNorm>> before;  // residual blocks at the widest level, before `levels`
  std::vector<MochiLevel> levels;              // widest first
  Linear proj_out;                             // [out_channels, narrowest]; on a GPU, finish() adds unused rows
  int64_t out_channels = 3;

  void weights(const Visit& visit, const MochiVaeConfig& config);
  /// Prepares the weights for decoding. Call once, after all weights are loaded.
  void finish();
};

/// Returns the number of frames that a level processes at once. `frames` frames are divided into parts as equal as
/// possible, each with at most `elements` elements; a part has at least one frame.
int64_t frames_at_once(int64_t frames, int64_t elements_a_frame, int64_t elements);

/// Decodes the next frames of a video: latents [F, H, W, latent channels]. Passes the result [t F, s H, s W,
/// out_channels], where t is frames_a_latent() and s is pixels_a_latent() of the config, to `done` in consecutive
/// parts. Each level processes as many frames at once as `elements` allows. The results for these frames pass through
/// all later levels before the level goes on with its next frames, so a level with small frames may process a whole
/// video at once. This order does not change the result. `history` starts empty. If history.rows is set, the latents
/// are this rank's band of rows, and all ranks split the frames in the same way.
void decode_frames(const MochiDecoder& decoder, const at::Tensor& latents, ConvHistory& history, int64_t elements,
                   const std::function<void(const at::Tensor& frames)>& done);

}  // namespace sparsereel::models
