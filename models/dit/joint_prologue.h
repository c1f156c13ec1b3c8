// What attention's own prologue has no fields for: norms of text tokens of their own, and rotary positions by head.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/prologue.h"
#include "models/dit/attend.h"

namespace sparsereel::models {

/// q and k [B, N, heads, head_dim] normalised as the prologue and `text` say, and the video's, which stand before
/// text_tokens of text, turned by rotary_by_head (TokenTables; undefined: not turned). The prologue has no rotary
/// tables.
attention::QueriesAndKeys joint_prologue(const at::Tensor& q, const at::Tensor& k, const attention::Prologue& prologue,
                                         const TextNorms& text, const at::Tensor& rotary_by_head, int64_t text_tokens);

}  // namespace sparsereel::models
