// A video whose pictures several ranks decode together, each a piece of their height: what the layers of a decoder ask
// the other ranks for. Who decodes alone has none.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/parallel/share.h"

namespace sparsereel::models {

/// From the first rank's piece at the top to the last one's at the bottom. All ranks make the same calls in the same
/// order; they throw as Group's do. Activations x are [F, h, W, C], h as many rows for each row of the latents on all
/// ranks.
class RowSplit {
 public:
  /// rows: of latents, no fewer than ranks, in slices of slice_of(). device: that of the activations. The group must
  /// outlive it.
  RowSplit(Group& group, int64_t rows, at::Device device);

  bool is_first() const { return group_.rank() == 0; }
  /// Of the latents' rows.
  Slice own() const { return slice_of(rows_, &group_); }
  /// How many rows the largest piece has where this rank's has `own`.
  int64_t most(int64_t own) const;

  /// What stands beyond the picture.
  enum class Outside { zeros, its_edge };
  /// Of framed [F, 1 + h + 1, W, C], the first and the last row become those of the pieces there, or what is beyond.
  void fill_ends(const at::Tensor& framed, Outside outside) const;
  /// x between such rows: [F, h + 2, W, C].
  at::Tensor surrounded(const at::Tensor& x, Outside outside) const;

  /// All pieces below each other, on all ranks: [F, H, W, C].
  at::Tensor whole(const at::Tensor& x) const;
  /// The same along `dim`, on the first rank alone; undefined on the others.
  at::Tensor collected(const at::Tensor& x, int64_t dim) const;

  /// Mean and variance [2, ..], fp64, of values on each rank's piece -> those on the whole, the same bits on all ranks.
  at::Tensor joined_moments(const at::Tensor& moments) const;

 private:
  /// Undefined where the picture ends.
  struct Neighbours {
    at::Tensor above, below;
  };
  Neighbours neighbours(const at::Tensor& x) const;
  int64_t rows_of(int64_t rank, int64_t own_rows) const;
  std::vector<at::Tensor> room_for_all(const at::Tensor& x, int64_t dim) const;

  Group& group_;
  int64_t rows_;
  at::Tensor parts_;  // fp64 [ranks]: each piece's part of the whole
};

}  // namespace sparsereel::models
