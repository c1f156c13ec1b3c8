// Exchanges data between ranks around attention (Ulysses: Jacobs et al., arXiv 2309.14509). Outside attention, a rank
// has a slice of the tokens with all heads. Inside attention, it has all tokens with some of the heads.
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

/// q, k and v are [B, N, heads, head_dim]. The moments have the form of attention::Prologue::q_moments; they are
/// undefined if the prologue needs none.
struct AttentionRows {
  at::Tensor q, k, v;
  at::Tensor q_moments{}, k_moments{};
};

/// The exchange around one attention call. Each rank holds a slice of the video tokens, followed by all text tokens.
/// slice_of() gives the slices of tokens and of heads. Each rank of the group calls to_heads() before attention and
/// to_tokens() after it. If ranks can reach each other's memory, a result of to_heads() is valid only until the next
/// call of to_heads(), and a result of to_tokens() until the next call of to_tokens(). This includes calls for another
/// HeadExchange of the group.
class HeadExchange {
 public:
  struct Shape {
    int64_t batch = 1;
    // The video tokens of all ranks together, and the text tokens, which every rank has.
    int64_t video_tokens = 0, text_tokens = 0;
    int64_t heads = 0, head_dim = 0;  // heads of all ranks together
    bool has_moments = false;
    at::TensorOptions options{};  // dtype and device of queries, keys and values
  };
  /// Throws Error if there are fewer heads than ranks.
  HeadExchange(Group& group, const Shape& shape);

  Slice heads() const { return heads(group_.rank()); }  // this rank's heads
  /// Returns queries, keys and values of all tokens with this rank's heads, as views of one tensor. `project` computes
  /// the queries (0), keys (1) or values (2) of this rank's tokens with all heads. If ranks can reach each other's
  /// memory, one of the three is sent while the next is computed. `moments` computes the moments of queries or keys x.
  /// It is called only if the shape has moments.
  AttentionRows to_heads(const std::function<at::Tensor(int64_t part)>& project,
                         const std::function<at::Tensor(const at::Tensor& x)>& moments) const;
  /// Exchanges attention's result x [B, N, this rank's heads, head_dim] of all tokens. Returns this rank's tokens with
  /// all heads, contiguous.
  at::Tensor to_tokens(const at::Tensor& x) const;

 private:
  using Copies = std::vector<StridedCopy>;
  /// The tensor that each rank has after an exchange. Its shape on rank `rank` is sizes(rank). part(whole, maker) is
  /// the view of what rank `maker` contributes. fill(part, rank, copies) adds the copies from this rank to rank `rank`;
  /// `part` is the view of that rank's tensor that receives them. fill_own(whole, copies) adds further copies within
  /// this rank.
  struct Whole {
    std::function<std::vector<int64_t>(int64_t rank)> sizes;
    std::function<at::Tensor(const at::Tensor& whole, int64_t maker)> part;
    std::function<void(const at::Tensor& part, int64_t rank, Copies& copies)> fill;
    std::function<void(const at::Tensor& whole, Copies& copies)> fill_own;  // empty if there is nothing to copy
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
  int64_t moment_elements_;     // space for the moments of a token, counted in elements of q; 0 if there are none
  int64_t tokens_offset_ = 0;   // where in the windows the result of to_tokens() begins, in bytes
  Windows* windows_ = nullptr;  // memory that all ranks can reach; null if ranks send messages instead
};

}  // namespace sparsereel::models
