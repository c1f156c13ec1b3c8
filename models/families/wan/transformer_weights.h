// The weights of Wan's transformer in the form that the forward pass uses, and their names in diffusers' checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/families/wan/config.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/parameters.h"
#include "models/layers/timestep_embedding.h"

namespace sparsereel::models {

// Sizes: C = heads x head_dim, F = ffn_dim, P of c = elements of a patch with c channels.

struct WanBlock {
  at::Tensor modulation;      // [1, 6, C] in fp32: shift, scale, gate of self-attention, then of feed-forward
  Linear qkv;                 // [3 C, C]: to_q, to_k, to_v stacked
  at::Tensor norm_q, norm_k;  // [C] in fp32, as the attention kernels read them
  Linear to_out;              // [C, C]
  Norm cross_norm;            // [C] in fp32; undefined if cross_attn_norm is false
  Linear cross_q, cross_kv;   // [C, C] and [2 C, C]: to_k, to_v stacked
  at::Tensor cross_norm_q, cross_norm_k;  // [C] in fp32
  Linear cross_out;                       // [C, C]
  Linear image_kv;                        // [2 C, C]: add_k_proj, add_v_proj stacked, for image tokens
  at::Tensor image_norm_k;                // [C] in fp32
  Linear feed_forward_in;                 // [F, C]
  Linear feed_forward_out;                // [C, F]

  /// Lists the block's weights. `name` is the prefix of their names: "blocks.0".
  void weights(const Visit& visit, const std::string& name, const WanConfig& config);
};

/// Projects the tokens of an image encoder, with D = image_dim channels, to the blocks' width.
struct WanImageEmbedding {
  at::Tensor positions;  // [1, pos_embed_seq_len, D]; undefined if the tokens have no learned positions
  Norm norm_in;          // [D] in fp32
  Linear in, out;        // [D, D], [C, D]
  Norm norm_out;         // [C] in fp32

  void weights(const Visit& visit, const WanConfig& config);
};

/// All layers outside the blocks.
struct WanEnds {
  Linear patch;                      // [C, P of in_channels], stored as a convolution kernel
  TimestepEmbedding time_embedding;  // in fp32; its channels are freq_dim, its outputs C
  Linear time_projection;            // [6 C, C]
  Linear text_in, text_out;          // [C, text_dim], [C, C]
  WanImageEmbedding image;           // undefined if the model does not attend to images
  at::Tensor modulation;             // [1, 2, C] in fp32: shift, scale
  Linear out;                        // [P of out_channels, C]

  void weights(const Visit& visit, const WanConfig& config);
};

}  // namespace sparsereel::models
