// The decoder of Open-Sora-Plan's CausalVAEModel: its weights, and latent frames through it.
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

/// Attention within each frame, with one head as wide as the level.
struct OpenSoraPlanAttention {
  GroupNorm norm;  // channels
  Linear qkv;      // [3 channels, channels]
  Linear out;      // [channels, channels]

  void weights(const Visit& visit, const std::string& name, int64_t channels);
};

struct OpenSoraPlanLevel {
  std::vector<ResnetBlock<GroupNorm>> resnets;
  at::Tensor pixels_weight, pixels_bias;  // of pixels alone: [channels, channels, 3, 3], channels-last, or undefined
  std::optional<CausalConv3d> upsampler;  // of pixels and frames
  bool doubles_frames = false;

  /// `index`: from pixels to latents.
  void weights(const Visit& visit, const OpenSoraPlanVaeConfig& config, size_t index, int64_t in);
};

struct OpenSoraPlanDecoder {
  std::optional<Linear> post_quant_conv;  // [z_channels, embed_dim], before everything else
  CausalConv3d conv_in;                   // z_channels -> widest
  ResnetBlock<GroupNorm> mid_first, mid_last;
  OpenSoraPlanAttention attention;        // between them
  std::vector<OpenSoraPlanLevel> levels;  // widest first
  GroupNorm norm_out;
  CausalConv3d conv_out;  // narrowest -> 3, or more that mean nothing

  void weights(const Visit& visit, const OpenSoraPlanVaeConfig& config);
  /// To be called once, when all weights are there.
  void finish();
};

/// latents [F, H, W, embed_dim], a video of its own -> [r (F - 1) + 1, s H, s W, 3]. Norms take the statistics of all
/// frames. rows: of whose pictures the latents are this rank's piece; null: of none.
at::Tensor decode_frames(const OpenSoraPlanDecoder& decoder, const at::Tensor& latents, const RowSplit* rows = nullptr);

}  // namespace sparsereel::models
