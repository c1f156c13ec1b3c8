// The weights of Mochi's transformer in the form that the forward pass uses, and their names in diffusers' checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/families/mochi/config.h"
#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/layers/timestep_embedding.h"

namespace sparsereel::models {

// Sizes: D = head_dim, C = heads x D, W = pooled_projection_dim (the width of the text stream), T = text_embed_dim,
// F(x) = 8 x / 3 (the inner width of the feed-forward of a stream of width x), P of c = elements of a patch with c
// channels.

/// A block's weights for one of its two streams, of width S = C or W.
struct MochiStream {
  Linear modulation;  // [4 S, C]: scale and gate of attention, then of the feed-forward; [S, C] in the text stream of
                      // the last block
  Linear qkv;         // [3 C, S]: queries, keys and values stacked
  at::Tensor norm_q, norm_k;  // [D] in fp32, as the attention kernels read them
  Linear to_out;              // [S, C]
  Linear feed_forward_in;     // [2 F(S), S]: values, then their gates
  Linear feed_forward_out;    // [S, F(S)]
};

struct MochiBlock {
  MochiStream video, text;
  /// True for the last block. Its text output is not used, so its text stream has no to_out and no feed-forward.
  bool ends_text = false;

  /// Lists the block's weights. `name` is the prefix of their names: "transformer_blocks.0".
  void weights(const Visit& visit, const std::string& name, const MochiConfig& config);
};

/// Pools a text to one vector, which contributes to the blocks' modulation. Attention has a single query, the mean of
/// the text's tokens; keys and values are the mean and the tokens.
struct MochiPooler {
  Linear to_q;    // [T, T]
  Linear to_kv;   // [2 T, T]: keys, values
  Linear to_out;  // [C, T]
};

/// All layers outside the blocks.
struct MochiEnds {
  Linear patch;                      // [C, P of in_channels], stored as a convolution kernel
  TimestepEmbedding time_embedding;  // its channels are time_embed_dim, its outputs C
  MochiPooler pooler;
  Linear text;                 // [W, T]
  at::Tensor pos_frequencies;  // [3, heads, D / 2]: rotation speed of each pair along frames, rows and columns
  Linear norm_out_modulation;  // [2 C, C]: scale, shift
  Linear out;                  // [P of out_channels, C]; in P, the channel is the fastest axis

  void weights(const Visit& visit, const MochiConfig& config);
};

}  // namespace sparsereel::models
