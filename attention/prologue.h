// Normalization and rotary embedding of q and k, which every mode of attention applies first.
#pragma once

#include "attention/attention.h"

namespace sparsereel::attention {

/// Returns a prologue whose pointers only say which tensors exist, as input for check(). The pointers must not be read.
/// rotary_pairs is left out.
CallPrologue which_exist(const Prologue& prologue);

/// Throws Error if the prologue's tensors do not fit queries or keys [B, N, H, D]. The caller has already run check()
/// on which_exist().
void check_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k, int64_t text_tokens);

/// q and k after the prologue, [B, N, H, D] in q's dtype. If the prologue is empty, these are the original tensors.
/// text_tokens: number of last tokens that are text.
struct QueriesAndKeys {
  at::Tensor q, k;
};
QueriesAndKeys apply_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k,
                              int64_t text_tokens = 0);

}  // namespace sparsereel::attention
