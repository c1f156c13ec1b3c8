// Between tokens and heads: outside of attention a rank has some of the tokens with all their heads, inside of it all
// tokens with some of their heads (Ulysses: Jacobs et al., arXiv 2309.14509).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "models/layers/strided_copies.h"
#include "models/parallel/group.h"
#include "models/parallel/share.h"

namespace sparsereel::models {

/// q, k and v [B, N, heads, head_dim]; moments as attention::Prologue's, undefined where there are none.
struct AttentionRows {
  at::Tensor q, k, v;
  at::Tensor q_moments{}, k_moments{};
};

/// Of one call of attention, whose tokens are those of the video, in slices, and behind them those of a text, which all
/// ranks have. Slices of tokens and of heads are those of slice_of(). All ranks of the group call the same, to_heads()
/// and to_tokens() in turn: where they reach each other's memory, what one returns is overwritten by its next call.
class HeadExchange {
 public:
  /// video_tokens: of all ranks. Throws Error where there are fewer heads than ranks, or k has fewer than q.
  HeadExchange(Group& group, const AttentionRows& like, int64_t video_tokens, int64_t text_tokens);

  Slice heads() const { return heads(group_.rank()); }
  /// Of a slice of the tokens with all heads -> of all tokens with this rank's heads: views of one tensor.
  AttentionRows to_heads(const AttentionRows& rows) const;
  /// x [B, N, this rank's heads, head_dim] of all tokens -> of this rank's tokens with all heads, contiguous.
  at::Tensor to_tokens(const at::Tensor& x) const;

 private:
  using Copies = std::vector<StridedCopy>;
  /// What a rank has after an exchange: its sizes, the part of it that a rank makes, and the copies by which this rank
  /// makes its part of another one's, and what it has of its own beside that.
  struct Whole {
    std::function<std::vector<int64_t>(int64_t rank)> sizes;
    std::function<at::Tensor(const at::Tensor& whole, int64_t maker)> part;
    std::function<void(const at::Tensor& part, int64_t rank, Copies& copies)> fill;
    std::function<void(const at::Tensor& whole, Copies& copies)> fill_own;  // empty: nothing
  };
  at::Tensor deliver(const Whole& whole, int64_t offset) const;
  at::Tensor deliver_by_windows(const Whole& whole, int64_t offset) const;
  at::Tensor deliver_by_messages(const Whole& whole) const;
  void put(const at::Tensor& to, const AttentionRows& rows, const at::Tensor& moments, int64_t rank,
           Copies& copies) const;

  Slice tokens(int64_t rank) const { return slice_of(video_tokens_, group_.size(), rank); }
  Slice heads(int64_t rank) const { return slice_of(heads_, group_.size(), rank); }
  std::vector<int64_t> rows_of_heads(int64_t rank) const;
  std::vector<int64_t> rows_of_tokens(int64_t rank) const;
  AttentionRows rows_in(const at::Tensor& all) const;

  Group& group_;
  int64_t batch_, video_tokens_, text_tokens_;
  int64_t heads_, head_dim_;
  int64_t moment_elements_;  // of a token in the dtype of q; 0: there are none
  at::TensorOptions options_;
  int64_t tokens_offset_ = 0;   // in windows, of what to_tokens() makes
  Windows* windows_ = nullptr;  // null: ranks send messages
};

}  // namespace sparsereel::models
