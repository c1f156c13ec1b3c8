// Data that depend only on a grid, its token order and a rank's slice: the permutation of tokens, and the position
// tables in that order.
#pragma once

#include <ATen/core/Tensor.h>

#include "hilbert/token_order.h"
#include "models/layers/positions.h"
#include "models/parallel/share.h"

namespace sparsereel::models {

/// Rotary positions that differ between heads, in the form of attention::Prologue's rotary_positions and
/// rotary_frequencies. Undefined if the model has none.
struct RotaryByHead {
  at::Tensor positions{};    // fp32 [N video, 4]; only the first three columns are read
  at::Tensor frequencies{};  // fp32 [heads, 3, head_dim / 2]
};

/// A family's tables for one grid, in native token order.
struct TokenTables {
  at::Tensor video_positions;  // [N video, C], added to the tokens; undefined if there are none
  at::Tensor text_positions;   // [L, C], added to the text; undefined if there are none
  RotaryTable rotary;          // undefined if there is none
  /// The rotary table of the tokens after the video's, in their order; undefined if they are not rotated.
  RotaryTable text_rotary{};
  RotaryByHead rotary_by_head{};  // if defined, used instead of `rotary`
};

/// The order, the slice and the positions of a forward pass's tokens. All tensors are on the run's device.
/// Video tokens are in the run's order.
struct TokenPlan {
  hilbert::Grid grid;
  Slice slice;                 // the video tokens of this rank
  Group* group = nullptr;      // the ranks that share the video tokens, one slice each; null if this rank has all
  at::Tensor order;            // int64 [slice]: each token's index in native order; undefined if the order is native
  at::Tensor inverse;          // int64 [N video]: the inverse permutation; undefined if the order is native
  at::Tensor video_positions;  // [slice, C], from TokenTables, in the run's dtype
  at::Tensor text_positions;   // [L, C], in the run's dtype
  // fp32, one row for each video token of all ranks, because attention sees all of them. With rotates_text, rows for
  // the text tokens follow.
  RotaryTable rotary;
  bool rotates_text = false;    // true if the tokens after the video's have rotary positions too
  at::Tensor rotary_pairs;      // attention::rotary_pairs() of `rotary` on a GPU
  RotaryByHead rotary_by_head;  // fp32, for all video tokens
};

/// Makes a plan. `options` has the run's device and dtype. The ranks of `group` share the video tokens; it is null for
/// a single rank.
TokenPlan make_token_plan(const TokenTables& tables, const hilbert::Grid& grid, hilbert::TokenOrder order,
                          const at::TensorOptions& options, Group* group = nullptr);

}  // namespace sparsereel::models
