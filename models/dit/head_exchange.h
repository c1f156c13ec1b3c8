// Between tokens and heads: outside of attention a rank has some of the tokens with all their heads, inside of it all
// tokens with some of their heads (Ulysses: Jacobs et al., arXiv 2309.14509).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/parallel/group.h"
#include "models/parallel/share.h"

namespace sparsereel::models {

/// q, k and v [B, N, heads, head_dim], k and v with the same or a divisor of q's heads; moments as
/// attention::Prologue's, undefined where there are none.
struct AttentionRows {
  at::Tensor q, k, v;
  at::Tensor q_moments{}, k_moments{};
};

/// Of one call of attention, whose tokens are those of the video, in slices, and behind them those of a text, which all
/// ranks have. Slices of tokens and of heads are those of slice_of(). All ranks of the group call the same.
class HeadExchange {
 public:
  /// video_tokens: of all ranks. Throws Error where k has fewer heads than there are ranks.
  HeadExchange(Group& group, const AttentionRows& like, int64_t video_tokens, int64_t text_tokens);

  /// Of q.
  Slice heads() const { return own_heads_; }
  /// Of a slice of the tokens with all heads -> of all tokens with this rank's heads: views of one tensor.
  AttentionRows to_heads(const AttentionRows& rows) const;
  /// x [B, N, this rank's heads, head_dim] of all tokens -> of this rank's tokens with all heads, contiguous.
  at::Tensor to_tokens(const at::Tensor& x) const;

 private:
  Slice tokens(int64_t rank) const { return slice_of(video_tokens_, group_.size(), rank); }
  Slice kv_heads(int64_t rank) const { return slice_of(kv_heads_, group_.size(), rank); }
  Slice heads(int64_t rank) const;
  int64_t row_elements(int64_t rank) const;
  void put(const at::Tensor& to, const AttentionRows& rows, int64_t rank, const Slice& tokens) const;
  AttentionRows rows_in(const at::Tensor& all) const;

  Group& group_;
  int64_t video_tokens_, text_tokens_;
  int64_t kv_heads_, together_, head_dim_;  // together_: heads of q that share one of k
  int64_t moment_elements_;                 // of a token's moments in the dtype of q
  Slice own_tokens_, own_heads_;
};

}  // namespace sparsereel::models
