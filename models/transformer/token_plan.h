// Data that depend only on a grid, its token order and a rank's slice: the permutation, and position tables in that
// order.
#pragma once

#include <ATen/core/Tensor.h>

#include "hilbert/token_order.h"
#include "models/layers/positions.h"
#include "models/parallel/share.h"

namespace sparsereel::models {

/// Rotary positions that differ by head, for rotary_positions and rotary_frequencies of attention::Prologue. Undefined
/// if the model has none.
struct RotaryByHead {
  at::Tensor positions{};    // fp32 [N video, 4]; the first three are read
  at::Tensor frequencies{};  // fp32 [heads, 3, head_dim / 2]
};

/// A family's tables for one grid, in native token order.
struct TokenTables {
  at::Tensor video_positions;  // [N video, C], added to the tokens; undefined if there are none
  at::Tensor text_positions;   // [L, C], added to the text; undefined if there are none
  RotaryTable rotary;          // undefined if there is none
  /// Tables for the tokens behind the video, in their order; undefined if these are not rotated.
  RotaryTable text_rotary{};
  RotaryByHead rotary_by_head{};  // replaces `rotary`, by head
};

/// The facts about tokens that forward passes need: order, slice and positions. All tensors are on the run's device,
/// with video tokens in the run's order.
struct TokenPlan {
  hilbert::Grid grid;
  Slice slice;                 // the video tokens of this rank
  Group* group = nullptr;      // ranks that have one slice each; null if this rank has all video tokens
  at::Tensor order;            // int64 [slice]: the index of each token in native order; undefined for the native order
  at::Tensor inverse;          // int64 [N video]: the inverse permutation; undefined for the native order
  at::Tensor video_positions;  // [slice, C], from TokenTables, in the run's dtype
  at::Tensor text_positions;   // [L, C], in the run's dtype
  RotaryTable rotary;          // [N video] in fp32, because attention sees all tokens; [N] if rotates_text
  bool rotates_text = false;   // the tokens behind the video have rotary positions, too
  at::Tensor rotary_pairs;     // attention::rotary_pairs() of `rotary` on a GPU
  RotaryByHead rotary_by_head;  // [N video] in fp32
};

/// Makes a plan. `options` give the run's device and dtype. The ranks of `group` split the video tokens; null for a
/// single rank.
TokenPlan make_token_plan(const TokenTables& tables, const hilbert::Grid& grid, hilbert::TokenOrder order,
                          const at::TensorOptions& options, Group* group = nullptr);

}  // namespace sparsereel::models
