// The encoder of diffusers' AutoencoderKLCogVideoX: its weights, and the encoding of one batch of frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/cogvideox/vae_config.h"
#include "models/layers/linear.h"
#include "models/vae/group_norm.h"
#include "models/vae/resnet.h"

namespace sparsereel::models {

struct Downsampler {
  at::Tensor weight;           // [channels, channels, 3, 3], channels-last
  at::Tensor bias;             // [channels]
  bool compress_time = false;  // halves the frames too
};

struct DownBlock {
  std::vector<ResnetBlock<GroupNorm>> resnets;
  std::optional<Downsampler> downsampler;  // in all but the last block
};

struct CogVideoXEncoder {
  CausalConv3d conv_in;                     // in_channels -> narrowest
  std::vector<DownBlock> down;              // narrowest first
  std::vector<ResnetBlock<GroupNorm>> mid;  // two, widest
  GroupNorm norm_out;
  CausalConv3d conv_out;             // widest -> 2 latent channels: mean and log variance
  std::optional<Linear> quant_conv;  // [2 channels, 2 channels], after everything else

  void weights(const Visit& visit, const CogVideoXVaeConfig& config);
  /// Call once, after all weights are loaded.
  void finish();
};

/// frames [F, H, W, in_channels] in any memory layout -> mean and log variance [F', H / 8, W / 8, 2 latent channels].
/// They are the next frames of a video. Whenever frames are halved, the first of an odd number stays as it is. Norms
/// use the statistics of the whole batch. `history` starts empty.
at::Tensor encode_frames(const CogVideoXEncoder& encoder, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
