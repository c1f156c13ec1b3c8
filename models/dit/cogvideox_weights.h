// The tensors of CogVideoX's transformer, as the forward pass wants them, and their names in a diffusers checkpoint.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "models/checkpoint/configs.h"
#include "models/layers/timestep_embedding.h"
#include "models/weights/weights.h"

namespace sparsereel::models {

// Sizes: C = heads x head_dim (D), T = time_embed_dim, P = channels x patch_size_t x patch_size^2 (one patch, channel
// slowest).

/// Layer norm whose shift, scale and gate come from the timestep.
struct AdaptiveNorm {
  Affine modulation;  // [6 C, T]: shift, scale, gate of the video tokens, then of the text tokens
  Affine norm;        // [C]; undefined where norm_elementwise_affine is false
};

struct CogVideoXBlock {
  AdaptiveNorm norm1;
  Affine qkv;             // [3 C, C]: to_q, to_k, to_v below each other
  Affine norm_q, norm_k;  // [D] in fp32, as the attention kernels read it
  Affine to_out;          // [C, C]
  AdaptiveNorm norm2;
  Affine feed_forward_in;   // [4 C, C]
  Affine feed_forward_out;  // [C, 4 C]
};

/// Every tensor of a block, in a fixed order.
std::vector<at::Tensor*> tensors_of(CogVideoXBlock& block);

struct CogVideoXWeights {
  Affine patch;                  // [C, P]
  Affine text;                   // [C, text_embed_dim]
  at::Tensor learned_positions;  // [1, max_text_seq_length + tokens at the sample size, C], text first; undefined where
                                 // not learned
  TimestepEmbedding time_embedding;  // channels = C
  std::vector<CogVideoXBlock> blocks;
  Affine norm_final;           // [C]; undefined where norm_elementwise_affine is false
  Affine norm_out_modulation;  // [2 C, T]: shift, scale
  Affine norm_out;             // [C]; likewise
  Affine out;                  // [P of out_channels, C]
};

/// Asks the reader for every tensor of the configuration, then for its check_complete(). `block_read` may take the
/// tensors of each block as soon as they are there.
CogVideoXWeights load_cogvideox_weights(WeightReader& reader, const CogVideoXConfig& config,
                                        const std::function<void(CogVideoXBlock&)>& block_read = {});

}  // namespace sparsereel::models
