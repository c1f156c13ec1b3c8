// The decoder of Open-Sora-Plan's CausalVAEModel: its weights, and a function that decodes latent frames.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/families/open_sora_plan/vae_config.h"
#include "models/layers/linear.h"
#include "models/vae/causal_conv3d.h"
#include "models/vae/group_norm.h"
#include "models/vae/resnet.h"

namespace sparsereel::models {

/// Attention within each frame, with a single head of all channels.
struct OpenSoraPlanAttention {
  GroupNorm norm;  // channels
  Linear qkv;      // [3 channels, channels]
  Linear out;      // [channels, channels]

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

struct OpenSoraPlanLevel {
  std::vector<ResnetBlock<GroupNorm>> resnets;
  /// The convolution after upsampling of height and width only: [channels, channels, 3, 3], channels-last. Undefined if
  /// the level does not upsample in this way.
  at::Tensor pixels_weight, pixels_bias;
  /// The convolution after upsampling of frames, height and width; unset if the level does not upsample in this way.
  std::optional<CausalConv3d> upsampler;
  bool doubles_frames = false;

  /// Lists the level's weights. `index` counts levels from pixels to latents.
  void weights(const Visit& visit, const OpenSoraPlanVaeConfig& config, size_t index, int64_t in);
};

struct OpenSoraPlanDecoder {
  std::optional<Linear> post_quant_conv;  // [z_channels, embed_dim], before everything else
  CausalConv3d conv_in;                   // convolution from z_channels to the widest level
  ResnetBlock<GroupNorm> mid_first, mid_last;
  OpenSoraPlanAttention attention;        // between mid_first and mid_last
  std::vector<OpenSoraPlanLevel> levels;  // widest first
  GroupNorm norm_out;
  /// Convolution from the narrowest level to 3 channels; its output may be padded with unused channels.
  CausalConv3d conv_out;

  void weights(const Visit& visit, const OpenSoraPlanVaeConfig& config);
  /// Prepares the weights for decoding. Call once, after all weights are loaded.
  void finish();
};

/// Decodes a complete video: latents [F, H, W, embed_dim]. Returns frames [r (F - 1) + 1, s H, s W, 3], where r is
/// frames_a_latent() and s is pixels_a_latent() of the config. Norms use the statistics of all frames. If `rows` is not
/// null, the latents are this rank's band of rows.
at::Tensor decode_frames(const OpenSoraPlanDecoder& decoder, const at::Tensor& latents, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
