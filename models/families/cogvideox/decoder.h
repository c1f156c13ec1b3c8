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
  bool compress_time = false;  // true: doubles the number of frames, too, not only height and width
};

struct UpBlock {
  std::vector<ResnetBlock<SpatialNorm>> resnets;
  std::optional<Upsampler> upsampler;  // in all but the last block
};

struct CogVideoXDecoder {
  std::optional<Linear> post_quant_conv;      // [out_channels, out_channels], before everything else
  CausalConv3d conv_in;                       // convolution from latent channels to the widest level
  std::vector<ResnetBlock<SpatialNorm>> mid;  // two blocks, at the widest level
  std::vector<UpBlock> up;                    // widest first
  SpatialNorm norm_out;
  /// Convolution from the narrowest level to out_channels; its output may be padded with unused channels.
  CausalConv3d conv_out;
  int64_t out_channels = 3;

  void weights(const Visit& visit, const CogVideoXVaeConfig& config);
  /// Prepares the weights for decoding. Call once, after all weights are loaded.
  void finish();
};

/// Decodes the next 1 to 3 latent frames of a video: latents [F, H, W, latent channels]. Returns frames [F', 8 H, 8 W,
/// 3]. `history` starts empty. If history.rows is set, the latents are this rank's band of rows.
at::Tensor decode_frames(const CogVideoXDecoder& decoder, const at::Tensor& latents, ConvHistory& history);

}  // namespace sparsereel::models
