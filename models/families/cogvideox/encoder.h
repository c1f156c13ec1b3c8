// The encoder of diffusers' AutoencoderKLCogVideoX: its weights, and one batch of frames through it.
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
  /// To be called once, when all weights are there.
  void finish();
};

/// frames [F, H, W, in_channels], the next ones of a video, laid out in whatever way -> mean and log variance [F', H /
/// 8, W / 8, 2 latent channels]. Each time that frames are halved, the first of an odd number stays apart. Norms take
/// all frames of the batch together. `history` starts empty.
at::Tensor encode_frames(const CogVideoXEncoder& encoder, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
