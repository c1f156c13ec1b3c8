// The weights of CogVideoX's transformer in the form that the forward pass uses, and their names in diffusers'
// checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/families/cogvideox/config.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/parameters.h"
#include "models/layers/timestep_embedding.h"

namespace sparsereel::models {

// Sizes: D = head_dim, C = heads x D, T = time_embed_dim. P of c = c x patch_size_t x patch_size^2 is the number of
// elements of a patch with c channels; the channel is the slowest axis.

/// Layer norm whose shift, scale and gate come from the timestep.
struct AdaptiveNorm {
  Linear modulation;  // [6 C, T]: shift, scale, gate of the video tokens, then of the text tokens
  Norm norm;          // [C]; undefined if norm_elementwise_affine is false
};

struct CogVideoXBlock {
  AdaptiveNorm norm1;
  Linear qkv;           // [3 C, C]: to_q, to_k, to_v stacked
  Norm norm_q, norm_k;  // [D] in fp32, as the attention kernels read them
  Linear to_out;        // [C, C]
  AdaptiveNorm norm2;
  Linear feed_forward_in;   // [4 C, C]
  Linear feed_forward_out;  // [C, 4 C]

  /// Lists the block's weights. `name` is the prefix of their names: "transformer_blocks.0".
  void weights(const Visit& visit, const std::string& name, const CogVideoXConfig& config);
};

/// All layers outside the blocks.
struct CogVideoXEnds {
  Linear patch;  // [C, P of in_channels]
  Linear text;   // [C, text_embed_dim]
  /// [1, max_text_seq_length + tokens at the sample size, C], text first; undefined if positions are not learned.
  at::Tensor learned_positions;
  TimestepEmbedding time_embedding;  // channels = C
  TimestepEmbedding ofs_embedding;   // channels = T; embeds the constant of ofs_embed_dim; undefined if that is null
  Norm norm_final;                   // [C]; undefined if norm_elementwise_affine is false
  Linear norm_out_modulation;        // [2 C, T]: shift, scale
  Norm norm_out;                     // [C]; undefined if norm_elementwise_affine is false
  Linear out;                        // [P of out_channels, C]

  void weights(const Visit& visit, const CogVideoXConfig& config);
};

}  // namespace sparsereel::models
