// MiniMax-H3's VAE decoder. It is a transformer: its tokens are the latents of one tile, and its outputs are patches of
// pixels.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/families/minimax_h3/vae_config.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/positions.h"

namespace sparsereel::models {

// Sizes: C = heads x head_dim, L = latent_channels, R = number of register tokens. A latent stands for t frames of s x
// s pixels.

struct MiniMaxH3DecoderBlock {
  at::Tensor norm_attention, scale_attention;        // [C] in fp32: an RMS norm's weight, and a factor for the update
  Linear qkv;                                        // [3 C, C]: to_q, to_k, to_v stacked
  Linear to_out;                                     // [C, C]
  at::Tensor norm_feed_forward, scale_feed_forward;  // [C] in fp32
  Linear feed_forward_in;                            // [2 x hidden, C]: values, then their gates
  Linear feed_forward_out;

  /// Lists the block's weights. `name` is the prefix of their names.
  void weights(const Visit& visit, const std::string& name, const MiniMaxH3VaeConfig& config);
};

/// The decoder. Its residual stream is in fp32; its blocks multiply matrices in the dtype of their weights.
class MiniMaxH3Decoder {
 public:
  void weights(const Visit& visit, const MiniMaxH3VaeConfig& config);
  void finish() {}

  /// Decodes tiles of latents, fp32 [tiles, L, F, h, w], to fp32 [tiles, 3, t F, s h, s w] in the model's colors
  /// (ModelColors in vae.cpp).
  at::Tensor decode(const at::Tensor& latents, const MiniMaxH3VaeConfig& config) const;

 private:
  at::Tensor embed(const at::Tensor& latents) const;
  at::Tensor attended(const MiniMaxH3DecoderBlock& block, const at::Tensor& x, const RotaryTable& rotary,
                      const MiniMaxH3VaeConfig& config) const;

  Linear latents_in_;           // [L, L] in fp32, stored as a convolution kernel
  Linear tokens_in_;            // [C, L] in fp32
  at::Tensor register_tokens_;  // [1, R, C] in fp32
  std::vector<MiniMaxH3DecoderBlock> blocks_;
  Norm norm_out_;      // [C] in fp32
  Linear pixels_out_;  // [3 t s s, C]
};

/// Returns, on the CPU, the rotary tables of a tile's tokens, with time as the slowest axis. `others` more tokens
/// follow; their position is the middle of the tile. `sizes` are the tile's frames, height and width in latents.
RotaryTable minimax_h3_tile_positions(const MiniMaxH3VaeConfig& config, at::IntArrayRef sizes, int64_t others);

}  // namespace sparsereel::models
