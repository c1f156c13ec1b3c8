// The decoder of Open-Sora-Plan's CausalVAEModel: its weights, and the decoding of latent frames.
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
  at::Tensor pixels_weight, pixels_bias;  // for pixels only: [channels, channels, 3, 3], channels-last, or undefined
  std::optional<CausalConv3d> upsampler;  // for pixels and frames
  bool doubles_frames = false;

  /// `index` counts from pixels to latents.
  void weights(const Visit& visit, const OpenSoraPlanVaeConfig& config, size_t index, int64_t in);
};

struct OpenSoraPlanDecoder {
  std::optional<Linear> post_quant_conv;  // [z_channels, embed_dim], before everything else
  CausalConv3d conv_in;                   // z_channels -> widest
  ResnetBlock<GroupNorm> mid_first, mid_last;
  OpenSoraPlanAttention attention;        // between them
  std::vector<OpenSoraPlanLevel> levels;  // widest first
  GroupNorm norm_out;
  CausalConv3d conv_out;  // narrowest -> 3, perhaps padded with meaningless ones

  void weights(const Visit& visit, const OpenSoraPlanVaeConfig& config);
  /// Call once, after all weights are loaded.
  void finish();
};

/// latents [F, H, W, embed_dim], a complete video -> [r (F - 1) + 1, s H, s W, 3]. Norms use the statistics of all
/// frames. rows is the split whose band the latents are; null if they are whole.
at::Tensor decode_frames(const OpenSoraPlanDecoder& decoder, const at::Tensor& latents, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
