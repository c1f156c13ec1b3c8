// The decoder of diffusers' AutoencoderKLMochi: its weights, and latent frames through it.
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

/// A product that makes frames x height x width pixels of each.
struct MochiExpansion {
  Linear proj;  // [out x frames x height x width, in]; finish() brings the pixels' channels together
  int64_t frames = 1, side = 1, out = 0;

  void weights(const Visit& visit, const std::string& name, int64_t in);
};

struct MochiLevel {
  std::vector<ResnetBlock<GroupNorm>> blocks;
  std::optional<MochiExpansion> expansion;  // in all but the last level
};

struct MochiDecoder {
  Linear conv_in;                              // [widest, latent channels]
  std::vector<ResnetBlock<GroupNorm>> before;  // the first level
  std::vector<MochiLevel> levels;              // widest first
  Linear proj_out;                             // [out_channels, narrowest], on a GPU with rows that mean nothing behind
  int64_t out_channels = 3;

  void weights(const Visit& visit, const MochiVaeConfig& config);
  /// To be called once, when all weights are there.
  void finish();
};

/// How many of `frames` frames of so many elements a level takes at once: parts as equal as can be, of at most
/// `elements` or a frame.
int64_t frames_at_once(int64_t frames, int64_t elements_a_frame, int64_t elements);

/// latents [F, H, W, latent channels], the next frames of a video -> all of [t F, s H, s W, out_channels], in parts
/// that `done` is called with in turn. Each level takes as many frames at once as `elements` allow, and what it makes
/// of them goes through the levels behind it before the next ones: wide and small levels take a whole video. How a
/// video is cut changes nothing. `history` starts empty; where it has rows, latents are this rank's, and all ranks cut
/// alike.
void decode_frames(const MochiDecoder& decoder, const at::Tensor& latents, ConvHistory& history, int64_t elements,
                   const std::function<void(const at::Tensor& frames)>& done);

}  // namespace sparsereel::models
