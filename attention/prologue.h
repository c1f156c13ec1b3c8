// Normalisation and rotary embedding of q and k, as every mode of attention applies them first.
#pragma once

#include "attention/attention.h"

namespace sparsereel::attention {

/// The prologue with pointers that say only which of its tensors exist, for check(); without pairs.
CallPrologue which_exist(const Prologue& prologue);

/// Throws Error when the prologue's tensors do not fit [B, N, H, D] queries or keys. check() has seen which_exist().
void check_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k, int64_t text_tokens);

/// q and k, whose last text_tokens are of a text, after the prologue, [B, N, H, D] in the dtype of q; the arguments
/// themselves where the prologue is empty.
struct QueriesAndKeys {
  at::Tensor q, k;
};
QueriesAndKeys apply_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k,
                              int64_t text_tokens = 0);

}  // namespace sparsereel::attention
