// The decoder of diffusers' AutoencoderKLCogVideoX: its weights, and the decoding of one batch of latent frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/cogvideox/vae_config.h"
#include "models/layers/linear.h"
#include "models/vae/resnet.h"
#include "models/vae/spatial_norm.h"

namespace sparsereel::models {

struct Upsampler {
  at::Tensor weight;           // [channels, channels, 3, 3], channels-last
  at::Tensor bias;             // [channels]
  bool compress_time = false;  // doubles the frames too
};

struct UpBlock {
  std::vector<ResnetBlock<SpatialNorm>> resnets;
  std::optional<Upsampler> upsampler;  // in all but the last block
};

struct CogVideoXDecoder {
  std::optional<Linear> post_quant_conv;      // [channels, channels], before everything else
  CausalConv3d conv_in;                       // latent channels -> widest
  std::vector<ResnetBlock<SpatialNorm>> mid;  // two, widest
  std::vector<UpBlock> up;                    // widest first
  SpatialNorm norm_out;
  CausalConv3d conv_out;  // narrowest -> out_channels, perhaps padded with meaningless ones
  int64_t out_channels = 3;

  void weights(const Visit& visit, const CogVideoXVaeConfig& config);
  /// Call once, after all weights are loaded.
  void finish();
};

/// latents [F, H, W, latent channels], the next frames of a video, F = 1, 2 or 3 -> [F', 8 H, 8 W, 3]. `history` starts
/// empty. If it has rows, latents are this rank's band.
at::Tensor decode_frames(const CogVideoXDecoder& decoder, const at::Tensor& latents, ConvHistory& history);

}  // namespace sparsereel::models
