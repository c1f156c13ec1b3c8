// The order of a head's channels in which rotary embeddings rotate neighboring channels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

/// The heads of a layer. Checkpoints rotate the first `rotated` channels of a head in pairs (i, i + rotated / 2), but
/// our attention rotates pairs of neighbors. So the channels of q and k are reordered, which does not change the scores
/// if both have the same order.
struct RotatedHeads {
  int64_t count = 0, dim = 0, rotated = 0;

  /// Returns int64 [dim]: the channels in the order in which pairs are neighbors.
  at::Tensor channel_order() const;
  /// Returns int64 [3 x count x dim]: the order of the rows of stacked layers q, k and v. The rows of v keep their
  /// order.
  at::Tensor row_order() const;
  /// Returns row_order() for a layer that holds q, k and v of the first head, then q, k and v of the next head.
  at::Tensor row_order_by_head() const;
};

}  // namespace sparsereel::models
