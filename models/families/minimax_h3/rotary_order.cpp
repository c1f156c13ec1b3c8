// Orders channels so that the two channels of a rotated pair are neighbors.
#include "models/families/minimax_h3/rotary_order.h"

#include <ATen/ATen.h>

namespace sparsereel::models {

at::Tensor RotatedHeads::channel_order() const {
  const at::Tensor pairs = at::arange(rotated, at::kLong).view({2, -1}).t().flatten();
  return at::cat({pairs, at::arange(rotated, dim, at::kLong)});
}

at::Tensor RotatedHeads::row_order() const {
  const at::Tensor firsts = at::arange(2 * count, at::kLong).unsqueeze(1) * dim;
  return at::cat({(firsts + channel_order()).flatten(), at::arange(2 * count * dim, 3 * count * dim, at::kLong)});
}

at::Tensor RotatedHeads::row_order_by_head() const {
  return at::arange(3 * count * dim, at::kLong)
      .view({count, 3, dim})
      .transpose(0, 1)
      .flatten()
      .index_select(0, row_order());
}

}  // namespace sparsereel::models
