// The weights of MiniMax-H3's transformer in the form that the forward pass uses, and their names in diffusers'
// checkpoints.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "models/families/minimax_h3/config.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/parameters.h"
#include "models/layers/timestep_embedding.h"
#include "models/store/checkpoint/component.h"

namespace sparsereel::models {

// Sizes: C = hidden_size, D = head_dim, A = heads x D, F = ffn_dim, P = elements of a patch, T = time_embed_dim, K =
// inputs of a pruned file's modulation, R = number of modulations (ModulationRow).

/// Attention and feed-forward: the layers that the blocks and the text's refiner have in common.
struct MiniMaxH3Layer {
  Norm norm_attention{.weight = {}, .bias = {}, .rms = true};     // [C] in fp32
  Linear qkv;                                                     // [3 A, C]: to_q, to_k, to_v stacked
  at::Tensor norm_q, norm_k;                                      // [D] in fp32, as the attention kernels read them
  Linear to_out;                                                  // [C, A]
  Norm norm_feed_forward{.weight = {}, .bias = {}, .rms = true};  // [C] in fp32
  Linear feed_forward_in;                                         // [2 F, C]: values, then their gates
  Linear feed_forward_out;                                        // [C, F]

  /// Lists the layer's weights. `name` is the prefix of their names: "transformer_blocks.0". With `rotates`, the
  /// channels of queries and keys are in the order of RotatedHeads.
  void weights(const Visit& visit, const std::string& name, const MiniMaxH3Config& config, bool rotates);
};

/// The form of the timestep embedding from which modulation is computed. The embedding has few degrees of freedom, so
/// pruned files replace it by its coordinates in a basis of K vectors.
struct MiniMaxH3TimeForm {
  enum class Kind {
    embedding,    // silu(embedding) [T]
    coordinates,  // basis [K, T] x silu(embedding)
    table,  // interpolated between the rows of a table [rows, K], which are for equally spaced timesteps from 0 to 1
  };
  Kind kind = Kind::embedding;
  int64_t width = 0;  // T or K: number of inputs of each layer that computes modulation
  int64_t rows = 0;   // of the table

  bool is_pruned() const { return kind != Kind::embedding; }
};

/// Tells the form by the tensors of a file. Throws Error naming the file if its table has a single row.
MiniMaxH3TimeForm minimax_h3_time_form(const Component& component, const MiniMaxH3Config& config);

struct MiniMaxH3Block : MiniMaxH3Layer {
  /// [18 C, T or K]: six vectors for each kind of token. It is used only to compute `modulation`. For pruned files it
  /// is in fp32, because a few products then make large sums.
  Linear modulation_projection;
  at::Tensor modulation;  // [R, 6, C]: shift, scale, gate of attention, then of feed-forward, for each ModulationRow

  void weights(const Visit& visit, const std::string& name, const MiniMaxH3Config& config) {
    MiniMaxH3Layer::weights(visit, name, config, /*rotates=*/true);
  }
  void modulation_weights(const Visit& visit, const std::string& name, const MiniMaxH3Config& config,
                          const MiniMaxH3TimeForm& form);
};

/// All layers outside the blocks.
struct MiniMaxH3Ends {
  // The layers that read latents and timesteps, and the layers that write predictions, are in fp32.
  Linear patch;                                              // [C, P]
  Linear sound;                                              // [C, audio_in_channels]
  Linear text;                                               // [C, text_dim]
  MiniMaxH3TimeForm time_form;                               // must be set before weights() is called
  TimestepEmbedding time_embedding;                          // channels = freq_dim; undefined if there is a table
  at::Tensor time_basis, time_table;                         // in fp32, as MiniMaxH3TimeForm describes
  std::vector<MiniMaxH3Layer> refiner;                       // layers that process the text before the blocks
  Norm refiner_norm{.weight = {}, .bias = {}, .rms = true};  // [C] in fp32
  Norm norm_out{.weight = {}, .bias = {}, .rms = true};      // [C] in fp32
  Linear norm_out_modulation;                                // [2 C, T or K]: shift, scale
  Linear out;                                                // [P, C]
  Linear sound_out;                                          // [audio_in_channels, C]

  void weights(const Visit& visit, const MiniMaxH3Config& config);

 private:
  void time_weights(const Visit& visit, const MiniMaxH3Config& config);
};

}  // namespace sparsereel::models
