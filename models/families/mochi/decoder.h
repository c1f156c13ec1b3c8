// The decoder of diffusers' AutoencoderKLMochi: its weights, and a chunk of latent frames through it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "models/families/mochi/vae_config.h"
#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/vae/causal_conv3d.h"
#include "models/vae/group_norm.h"

namespace sparsereel::models {

struct MochiResidualBlock {
  GroupNorm norm1;     // channels
  CausalConv3d conv1;  // [channels, channels, 3, 3, 3]
  GroupNorm norm2;
  CausalConv3d conv2;

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

/// A product that makes frames x height x width pixels of each.
struct MochiExpansion {
  Linear proj;  // [out x frames x height x width, in]; finish() brings the pixels' channels together
  int64_t frames = 1, side = 1, out = 0;

  void weights(const Visit& visit, const std::string& name, int64_t in);
};

struct MochiLevel {
  std::vector<MochiResidualBlock> blocks;
  std::optional<MochiExpansion> expansion;  // in all but the last level
};

struct MochiDecoder {
  Linear conv_in;                          // [widest, latent channels]
  std::vector<MochiResidualBlock> before;  // the first level
  std::vector<MochiLevel> levels;          // widest first
  Linear proj_out;                         // [out_channels, narrowest]

  void weights(const Visit& visit, const MochiVaeConfig& config);
  /// To be called once, when all weights are there.
  void finish();
};

/// latents [F, H, W, latent channels], the next frames of a video -> [t F, s H, s W, out_channels]. How a video is cut
/// into chunks changes nothing. `history` starts empty.
at::Tensor decode_frames(const MochiDecoder& decoder, const at::Tensor& latents, ConvHistory& history);

}  // namespace sparsereel::models
