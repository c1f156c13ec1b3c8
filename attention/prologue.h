// Normalization and rotary embedding of q and k, which every mode of attention applies first.
#pragma once

#include "attention/attention.h"

namespace sparsereel::attention {

/// Returns a prologue for check(), which tests only whether pointers are null: a pointer is null if the tensor does not
/// exist. No pointer may be read. rotary_pairs is always null.
CallPrologue which_exist(const Prologue& prologue);

/// Throws Error if the prologue's tensors do not fit queries or keys [B, N, H, D]. The caller has already run check()
/// on which_exist().
void check_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k, int64_t text_tokens);

/// q and k after the prologue, [B, N, H, D] in q's dtype. If the prologue is empty, these are the original tensors.
/// text_tokens: number of text tokens, the last ones.
struct QueriesAndKeys {
  at::Tensor q, k;
};
QueriesAndKeys apply_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k,
                              int64_t text_tokens = 0);

}  // namespace sparsereel::attention
