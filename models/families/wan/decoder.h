// The decoder of diffusers' AutoencoderKLWan: its weights, and a function that decodes a chunk of latent frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/wan/vae_config.h"
#include "models/families/wan/vae_layers.h"

namespace sparsereel::models {

struct WanUpBlock {
  std::vector<WanResidualBlock> blocks;
  std::optional<WanResampler> upsampler;  // in all but the last level; may also double the frames
};

struct WanDecoder {
  Linear post_quant_conv;      // [z_dim, z_dim], before everything else
  CausalConv3d conv_in;        // convolution from z_dim channels to the widest level
  WanMidBlock mid;             // at the widest level
  std::vector<WanUpBlock> up;  // as decoder_levels() lists them
  at::Tensor norm_out;         // [narrowest]
  /// Convolution from the narrowest level to out_channels; its output may be padded with unused channels.
  CausalConv3d conv_out;
  bool is_residual = false;  // true: levels that upsample have a shortcut without weights
  int64_t out_channels = 3;

  void weights(const Visit& visit, const WanVaeConfig& config);
  /// Prepares the weights for decoding. Call once, after all weights are loaded.
  void finish();
};

/// Decodes the next latent frames of a video, [F, H, W, z_dim]. The video's first frame must come alone. Returns frames
/// [F', s H, s W, out_channels], in which out_channels still contain the pixels of a patch, so s is the scale without
/// patches. After the first frame, the number of frames per call does not change the result. `history` starts empty,
/// which means zeros before the video. If history.rows is set, the latents are this rank's band of rows.
at::Tensor decode_frames(const WanDecoder& decoder, const at::Tensor& latents, ConvHistory& history);

}  // namespace sparsereel::models
