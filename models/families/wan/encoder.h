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
  std::optional<WanResampler> downsampler;  // in all but the last level; may also halve the frames
};

struct WanEncoder {
  CausalConv3d conv_in;            // convolution from in_channels to the narrowest level
  std::vector<WanDownBlock> down;  // as encoder_levels() lists them
  WanMidBlock mid;                 // at the widest level
  at::Tensor norm_out;             // [widest]
  CausalConv3d conv_out;           // convolution from the widest level to 2 z_dim channels: mean and log variance
  Linear quant_conv;               // [z_dim, 2 z_dim], after everything else; only the rows that give the mean
  bool is_residual = false;        // levels have a shortcut without weights

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// Prepares the weights for encoding. Call once, after all weights are loaded.
  void finish();
};

/// Encodes the next frames of a video, [F, H, W, in_channels] with patches as channels. Returns the mean of the latents
/// [F', H / s, W / s, z_dim], where s does not include patches. The first frame of a video comes alone; later calls
/// take the frames of one or several latent frames. The number of frames per call does not change the result. `history`
/// starts empty, which means zeros before the video.
at::Tensor encode_frames(const WanEncoder& encoder, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
