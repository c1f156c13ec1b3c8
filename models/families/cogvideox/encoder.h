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
  bool compress_time = false;  // true: halves the number of frames, too, not only height and width
};

struct DownBlock {
  std::vector<ResnetBlock<GroupNorm>> resnets;
  std::optional<Downsampler> downsampler;  // in all but the last block
};

struct CogVideoXEncoder {
  CausalConv3d conv_in;                     // convolution from in_channels to the narrowest level
  std::vector<DownBlock> down;              // narrowest first
  std::vector<ResnetBlock<GroupNorm>> mid;  // two blocks, at the widest level
  GroupNorm norm_out;
  CausalConv3d conv_out;             // convolution from the widest level to 2 x latent_channels: mean and log variance
  std::optional<Linear> quant_conv;  // [2 x latent_channels, 2 x latent_channels], after everything else

  void weights(const Visit& visit, const CogVideoXVaeConfig& config);
  /// Prepares the weights for encoding. Call once, after all weights are loaded.
  void finish();
};

/// Encodes the next frames of a video, [F, H, W, in_channels] in any memory layout. Returns mean and log variance of
/// the latents, [F', H / 8, W / 8, 2 x latent_channels]. Whenever an odd number of frames is halved, the first frame
/// stays as it is. Norms use the statistics of the whole batch. `history` starts empty.
at::Tensor encode_frames(const CogVideoXEncoder& encoder, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
