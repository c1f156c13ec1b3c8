// The weights of Open-Sora-Plan's transformer in the form that the forward pass uses, and their names in its
// checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "models/families/open_sora_plan/config.h"
#include "models/layers/linear.h"
#include "models/layers/parameters.h"
#include "models/layers/timestep_embedding.h"

namespace sparsereel::models {

// Sizes: C = heads x head_dim, P of c = elements of a patch with c channels.

struct OpenSoraPlanBlock {
  at::Tensor modulation;     // [6, C] in fp32: shift, scale, gate of self-attention, then of feed-forward
  Linear qkv;                // [3 C, C]: to_q, to_k, to_v stacked, rows of the first two in rotary_order()
  Linear to_out;             // [C, C]
  Linear cross_q, cross_kv;  // [C, C] and [2 C, C]: to_k, to_v stacked
  Linear cross_out;          // [C, C]
  Linear feed_forward_in;    // [4 C, C]
  Linear feed_forward_out;   // [C, 4 C]

  /// Lists the block's weights. `name` is the prefix of their names: "transformer_blocks.0".
  void weights(const Visit& visit, const std::string& name, const OpenSoraPlanConfig& config);
};

/// All layers outside the blocks.
struct OpenSoraPlanEnds {
  Linear patch;                      // [C, P of in_channels], stored as a convolution kernel
  TimestepEmbedding time_embedding;  // its channels are kTimeChannels, its outputs C
  Linear time_projection;            // [6 C, C]
  Linear text_in, text_out;          // [C, caption_channels], [C, C]
  at::Tensor modulation;             // [2, C] in fp32: shift, scale
  Linear out;                        // [P of out_channels, C]; in P, the channel is the fastest axis

  void weights(const Visit& visit, const OpenSoraPlanConfig& config);
};

/// Returns int64 [3 C]: for each row of our qkv matrix, the row of the stored matrix. The reference rotates pairs of
/// channels (i, i + n / 2), where n is the number of channels of an axis, but our kernels rotate pairs of neighbors.
/// Reordering queries and keys in the same way does not change the scores.
at::Tensor rotary_order(const OpenSoraPlanConfig& config);

}  // namespace sparsereel::models
