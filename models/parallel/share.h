// What one rank does of a video: which pass of guidance, which slice of the tokens, which heads; which rows of the
// frames. Everything else, the latents above all, every rank has and computes whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/parallel/group.h"

namespace sparsereel::models {

/// Neighbours among `count` things.
struct Slice {
  int64_t first = 0, count = 0;
};

/// That of one of `ranks` ranks; slices differ by one at most.
Slice slice_of(int64_t count, int64_t ranks, int64_t rank);
/// That of a rank of a group; null: all.
Slice slice_of(int64_t count, const Group* group);

/// The most rows that one of so many ranks holds of a picture of `rows`, with those of its neighbours.
int64_t piece_of_height(int64_t rows, int64_t ranks);

/// Passes on ranks of their own come first, where there are two and the ranks are even in number: they exchange nothing
/// but predictions. The ranks of a pass, or all ranks, share its tokens, and in attention its heads.
struct Share {
  Group* all = nullptr;           // null: one rank makes the video
  std::shared_ptr<Group> tokens;  // each with a slice of the tokens of the same passes; null: this rank has all
  std::shared_ptr<Group> passes;  // each with another pass and the same tokens; null: this rank computes all passes
};

/// The colors of all ranks in each split that share_of() makes of so many; none where it makes none.
std::vector<std::vector<int64_t>> splits_of_shares(int64_t ranks, int64_t passes);

/// Called by all ranks. group: null: one rank.
Share share_of(Group* group, int64_t passes);

/// The group's first `count` ranks by themselves; the others get a group of the others. Called by all.
std::shared_ptr<Group> first_ranks(Group& group, int64_t count);

/// Throws Error where so many ranks cannot share a video of so many passes, heads and tokens.
void check_ranks(int64_t ranks, int64_t passes, int64_t heads, int64_t tokens);

/// The slices of x beside each other along `dim`, of the ranks in their order; x alone where the group is null. Called
/// by all ranks; they may differ in size along dim, in lengths that sum up to `whole`, slices of slice_of().
at::Tensor gather_slices(const at::Tensor& x, int64_t dim, int64_t whole, Group* group);

/// Whether any rank says so. Called by all; null: whether this one does.
bool any_rank(bool says, Group* group, at::Device device);

}  // namespace sparsereel::models
