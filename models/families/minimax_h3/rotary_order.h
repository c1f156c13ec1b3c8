// The order of a head's channels for rotary embeddings on neighbors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sparsereel::models {

/// The channels of a head, of which the first `rotated` turn in pairs (i, i + rotated / 2) in checkpoints. Attention
/// turns neighbors. Scores do not change if the channels of q and k are reordered alike.
struct RotatedHeads {
  int64_t count = 0, dim = 0, rotated = 0;

  /// Returns int64 [dim]: the channels in the order in which pairs are neighbors.
  at::Tensor channel_order() const;
  /// Returns int64 [3 x count x dim]: the order of the rows of stacked layers q, k and v. The rows of v keep theirs.
  at::Tensor row_order() const;
  /// Returns row_order() for a layer that holds q, k and v of the first head, then those of the next.
  at::Tensor row_order_by_head() const;
};

}  // namespace sparsereel::models
