// Between tokens and heads: outside of attention a rank has some of the tokens with all their heads, inside of it all
// tokens with some of their heads (Ulysses: Jacobs et al., arXiv 2309.14509).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
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
  struct Shape {
    int64_t batch = 1;
    int64_t video_tokens = 0, text_tokens = 0;  // of all ranks, and of each
    int64_t heads = 0, head_dim = 0;            // of all ranks
    bool has_moments = false;
    at::TensorOptions options{};  // of queries, keys and values
  };
  /// Throws Error where there are fewer heads than ranks.
  HeadExchange(Group& group, const Shape& shape);

  Slice heads() const { return heads(group_.rank()); }
  /// project: makes the queries (0), keys (1) and values (2) of this rank's tokens with all heads, one after another;
  /// where ranks reach each other's memory, one goes there while the next is made. moments: of queries or keys, where
  /// the shape has them. Returns those of all tokens with this rank's heads: views of one tensor.
  AttentionRows to_heads(const std::function<at::Tensor(int64_t part)>& project,
                         const std::function<at::Tensor(const at::Tensor& x)>& moments) const;
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
  at::Tensor deliver(const Whole& whole, int64_t offset, CopiesBeside& beside) const;
  at::Tensor deliver_by_messages(const Whole& whole) const;
  at::Tensor in_window(int64_t rank, const std::vector<int64_t>& sizes, int64_t offset) const;
  StridedCopy piece(const at::Tensor& rows, const at::Tensor& x, int64_t part, int64_t first, int64_t rank) const;
  std::vector<int64_t> rows_of_heads(int64_t rank) const;
  std::vector<int64_t> rows_of_tokens(int64_t rank) const;
  at::Tensor made_by(const at::Tensor& rows, int64_t maker) const;
  AttentionRows views_of(const at::Tensor& all) const;

  Slice tokens(int64_t rank) const { return slice_of(shape_.video_tokens, group_.size(), rank); }
  Slice heads(int64_t rank) const { return slice_of(shape_.heads, group_.size(), rank); }

  Group& group_;
  Shape shape_;
  int64_t moment_elements_;     // of a token, as elements of q; 0: there are none
  int64_t tokens_offset_ = 0;   // in windows, of what to_tokens() makes
  Windows* windows_ = nullptr;  // null: ranks send messages
};

}  // namespace sparsereel::models
