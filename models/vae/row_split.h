// If several ranks decode a video together, each decodes a band of rows of every frame. A RowSplit exchanges what
// layers need from other ranks. A rank that decodes alone has no RowSplit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/parallel/share.h"

namespace sparsereel::models {

/// Divides frames into bands of rows. The first rank's band is at the top, the last rank's at the bottom. All ranks
/// must make the same calls in the same order; these throw as Group's calls do. Activations x are [F, h, W, C]. h is
/// the number of the rank's latent rows, times a factor that is the same on all ranks.
class RowSplit {
 public:
  /// `rows` is the number of latent rows of the whole frame, at least one per rank; slice_of() divides them. `device`
  /// is the device of the activations. The group must outlive the split.
  RowSplit(Group& group, int64_t rows, at::Device device);

  bool is_first() const { return group_.rank() == 0; }
  /// Returns this rank's latent rows.
  Slice own() const { return slice_of(rows_, &group_); }
  /// Returns the number of rows of the largest band if this rank's band has `own` rows.
  int64_t most(int64_t own) const;

  /// The values beyond the edges of the picture: zeros, or the picture's edge repeated.
  enum class Outside { zeros, its_edge };
  /// Fills the first and the last row of framed [F, 1 + h + 1, W, C] with rows of the neighboring bands, or with the
  /// values beyond the picture.
  void fill_ends(const at::Tensor& framed, Outside outside) const;
  /// Returns x with the rows of fill_ends() added above and below: [F, h + 2, W, C].
  at::Tensor surrounded(const at::Tensor& x, Outside outside) const;

  /// Returns all bands joined, on all ranks: [F, H, W, C].
  at::Tensor whole(const at::Tensor& x) const;
  /// Returns all bands joined along `dim` on the first rank; an undefined tensor on the other ranks.
  at::Tensor collected(const at::Tensor& x, int64_t dim) const;

  /// Combines the means and variances of the ranks' bands, fp64 [2, ..], to the means and variances of the whole
  /// frames. All ranks get the same bits.
  at::Tensor joined_moments(const at::Tensor& moments) const;

 private:
  /// The rows next to this rank's band, [F, 1, W, C] each; undefined at the picture's edge.
  struct Neighbors {
    at::Tensor above, below;
  };
  Neighbors neighbors(const at::Tensor& x) const;
  int64_t rows_of(int64_t rank, int64_t own_rows) const;
  std::vector<at::Tensor> room_for_all(const at::Tensor& x, int64_t dim) const;

  Group& group_;
  int64_t rows_;
  at::Tensor parts_;  // fp64 [ranks]: each band's fraction of the whole
};

}  // namespace sparsereel::models
