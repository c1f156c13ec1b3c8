// The tensors of Open-Sora-Plan's transformer, as the forward pass wants them and as its checkpoints name them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/families/open_sora_plan/config.h"
#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/layers/timestep_embedding.h"

namespace sparsereel::models {

// Sizes: C = heads x head_dim, P = a patch's elements.

struct OpenSoraPlanBlock {
  at::Tensor modulation;     // [6, C] in fp32: shift, scale, gate of self-attention, then of feed-forward
  Linear qkv;                // [3 C, C]: to_q, to_k, to_v below each other, rows of the first two in rotary_order()
  Linear to_out;             // [C, C]
  Linear cross_q, cross_kv;  // [C, C] and [2 C, C]: to_k, to_v below each other
  Linear cross_out;          // [C, C]
  Linear feed_forward_in;    // [4 C, C]
  Linear feed_forward_out;   // [C, 4 C]

  /// `name`: the block's, "transformer_blocks.0".
  void weights(const Visit& visit, const std::string& name, const OpenSoraPlanConfig& config);
};

/// All but the blocks.
struct OpenSoraPlanEnds {
  Linear patch;                      // [C, P of in_channels], stored as a convolution's
  TimestepEmbedding time_embedding;  // channels = kTimeChannels, time_embed_dim = C
  Linear time_projection;            // [6 C, C]
  Linear text_in, text_out;          // [C, caption_channels], [C, C]
  at::Tensor modulation;             // [2, C] in fp32: shift, scale
  Linear out;                        // [P of out_channels, C], channel fastest

  void weights(const Visit& visit, const OpenSoraPlanConfig& config);
};

/// int64 [3 C]: where the rows of the qkv matrix are stored. The reference turns channels i and i + n / 2 of each
/// axis's n together; as neighbours, of queries and keys alike, they give the same scores.
at::Tensor rotary_order(const OpenSoraPlanConfig& config);

}  // namespace sparsereel::models
