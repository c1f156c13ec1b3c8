// What depends on a grid and the order of its tokens alone: the permutation, and position tables in that order.
#pragma once

#include <ATen/core/Tensor.h>

#include "hilbert/token_order.h"
#include "models/layers/positions.h"

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
  at::Tensor order, inverse;    // int64 [N video]; undefined for the native order
  at::Tensor video_positions;   // as in TokenTables, in the run's dtype
  at::Tensor text_positions;    // likewise
  RotaryTable rotary;           // likewise, in fp32
  at::Tensor rotary_pairs;      // attention::rotary_pairs() of them on a GPU
  RotaryByHead rotary_by_head;  // likewise
};

/// options: the run's device and dtype.
TokenPlan make_token_plan(const TokenTables& tables, const hilbert::Grid& grid, hilbert::TokenOrder order,
                          const at::TensorOptions& options);

}  // namespace sparsereel::models
