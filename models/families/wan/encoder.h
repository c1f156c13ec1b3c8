// The encoder of diffusers' AutoencoderKLWan: its weights, and the encoding of a chunk of frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/wan/vae_config.h"
#include "models/families/wan/vae_layers.h"

namespace sparsereel::models {

struct WanDownBlock {
  std::vector<WanResidualBlock> blocks;
  std::optional<WanResampler> downsampler;  // in all but the last level; makes one frame of two
};

struct WanEncoder {
  CausalConv3d conv_in;            // in_channels -> narrowest
  std::vector<WanDownBlock> down;  // as encoder_levels() lists them
  WanMidBlock mid;                 // widest
  at::Tensor norm_out;             // [widest]
  CausalConv3d conv_out;           // widest -> 2 z_dim: mean and log variance
  Linear quant_conv;               // [z_dim, 2 z_dim], after everything else; only the rows of the mean
  bool is_residual = false;        // levels have a shortcut without weights

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// Call once, after all weights are loaded.
  void finish();
};

/// frames [F, H, W, in_channels] with patches as channels -> the mean of the latents [F', H / s, W / s, z_dim]. s does
/// not include patches. The first frame of a video comes alone; later chunks are the frames of one or several latents.
/// The chunks' size does not change the result. `history` starts empty, on zeros.
at::Tensor encode_frames(const WanEncoder& encoder, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
