// The part of a video that one rank computes: a guidance pass, a slice of the tokens, some heads, and some rows of the
// frames. Every rank holds and computes everything else in full, above all the latents.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/parallel/group.h"

namespace sparsereel::models {

struct Slice {
  int64_t first = 0, count = 0;
};

/// Returns the slice of a rank. The sizes of slices differ by at most one.
Slice slice_of(int64_t count, int64_t ranks, int64_t rank);
/// Returns this rank's slice of `count`, or all of `count` if the group is null.
Slice slice_of(int64_t count, const Group* group);

/// Returns an estimate of the most rows that a rank holds of a picture with `rows` rows, its neighbors' rows included.
int64_t piece_of_height(int64_t rows, int64_t ranks);

/// The groups in which ranks split the work. If there are two guidance passes and the number of ranks is even, half of
/// the ranks compute each pass: this saves exchanges, because ranks of different passes exchange only predictions. The
/// ranks of one pass split the tokens, and in attention the heads. Otherwise all ranks split tokens and heads.
struct SplitGroups {
  Group* all = nullptr;  // null if one rank makes the video
  /// Ranks that hold the other slices of the tokens of the same passes; null if this rank has all tokens.
  std::shared_ptr<Group> tokens;
  /// Ranks that compute the other passes of the same tokens; null if this rank computes all passes.
  std::shared_ptr<Group> passes;
};

/// Returns the colors of all ranks in each split that share_of() makes; empty if it makes none.
std::vector<std::vector<int64_t>> splits_of_shares(int64_t ranks, int64_t passes);

/// Splits the group for the guidance passes and the tokens. All ranks call this. The group is null for a single rank.
SplitGroups share_of(Group* group, int64_t passes);

/// Splits the group in two: the first `count` ranks, and the ranks after them. Returns the part that this rank belongs
/// to. All ranks call this.
std::shared_ptr<Group> first_ranks(Group& group, int64_t count);

/// Throws Error if this many ranks cannot share the video.
void check_ranks(int64_t ranks, int64_t passes, int64_t heads, int64_t tokens);

/// Joins the ranks' slices of x along `dim`, in the order of ranks. Returns x if the group is null. All ranks call
/// this. The slices must be those that slice_of() returns for `whole`.
at::Tensor gather_slices(const at::Tensor& x, int64_t dim, int64_t whole, Group* group);

/// Returns true if any rank passes true. All ranks call this. If the group is null, returns `says`.
bool any_rank(bool says, Group* group, at::Device device);

}  // namespace sparsereel::models
