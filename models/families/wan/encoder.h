// The encoder of diffusers' AutoencoderKLWan: its weights, and a chunk of frames through it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/wan/vae_config.h"
#include "models/families/wan/vae_layers.h"

namespace sparsereel::models {

struct WanDownBlock {
  std::vector<WanResidualBlock> blocks;
  std::optional<WanResampler> downsampler;  // in all but the last level; a frame of two
};

struct WanEncoder {
  CausalConv3d conv_in;            // in_channels -> narrowest
  std::vector<WanDownBlock> down;  // as encoder_levels() lists them
  WanMidBlock mid;                 // widest
  at::Tensor norm_out;             // [widest]
  CausalConv3d conv_out;           // widest -> 2 z_dim: mean and log variance
  Linear quant_conv;               // [z_dim, 2 z_dim], after everything else: the rows of the mean
  bool is_residual = false;        // levels have a shortcut without weights

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// To be called once, when all weights are there.
  void finish();
};

/// frames [F, H, W, in_channels] with patches as channels, the next of a video, the first one by itself, behind it as
/// many as a latent stands for, or several times that -> the mean of the latents [F', H / s, W / s, z_dim], where s is
/// without the patches. How a video is cut into such chunks changes nothing. `history` starts empty, on zeros.
at::Tensor encode_frames(const WanEncoder& encoder, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
