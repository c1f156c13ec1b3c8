// What depends on a grid, the order of its tokens and a rank's slice of them alone: the permutation, and position
// tables in that order.
#pragma once

#include <ATen/core/Tensor.h>

#include "hilbert/token_order.h"
#include "models/layers/positions.h"
#include "models/parallel/share.h"

namespace sparsereel::models {

/// Rotary positions that differ by head: attention::Prologue's rotary_positions and rotary_frequencies; undefined:
/// none.
struct RotaryByHead {
  at::Tensor positions{};    // fp32 [N video, 4], of which three are read
  at::Tensor frequencies{};  // fp32 [heads, 3, head_dim / 2]
};

/// A family's tables for one grid, in native token order.
struct TokenTables {
  at::Tensor video_positions;     // [N video, C], added to the tokens; undefined: none
  at::Tensor text_positions;      // [L, C], likewise
  RotaryTable rotary;             // undefined: none
  RotaryByHead rotary_by_head{};  // or this
};

/// On the run's device, video tokens in the run's order.
struct TokenPlan {
  hilbert::Grid grid;
  Slice slice;                  // of the video tokens: what this rank has of them
  Group* group = nullptr;       // whose ranks have one slice each; null: this rank has all
  at::Tensor order;             // int64 [slice], the native places; undefined for the native order
  at::Tensor inverse;           // int64 [N video], likewise
  at::Tensor video_positions;   // [slice, C] of TokenTables', in the run's dtype
  at::Tensor text_positions;    // likewise
  RotaryTable rotary;           // [N video], likewise, in fp32: attention is of all tokens
  at::Tensor rotary_pairs;      // attention::rotary_pairs() of them on a GPU
  RotaryByHead rotary_by_head;  // likewise
};

/// options: the run's device and dtype. group: whose ranks share the tokens; null: nobody does.
TokenPlan make_token_plan(const TokenTables& tables, const hilbert::Grid& grid, hilbert::TokenOrder order,
                          const at::TensorOptions& options, Group* group = nullptr);

}  // namespace sparsereel::models
