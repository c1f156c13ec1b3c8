// Gathers keys and values of all ranks' bands. Each rank attends with the queries of its own pixels.
#include "models/vae/frame_attention.h"

#include <ATen/ATen.h>

#include <vector>

#include "models/vae/row_split.h"

namespace sparsereel::models {

at::Tensor attend_within_frames(const at::Tensor& qkv, const RowSplit* rows) {
  const int64_t channels = qkv.size(3) / 3;
  const auto as_head = [](const at::Tensor& x) { return x.flatten(1, 2).unsqueeze(1); };  // [F, 1 head, H * W, ..]
  at::Tensor mixed;
  if (rows == nullptr) {
    const std::vector<at::Tensor> parts = as_head(qkv).chunk(3, -1);
    mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
  } else {
    const std::vector<at::Tensor> seen = as_head(rows->whole(qkv.narrow(3, channels, 2 * channels))).chunk(2, -1);
    mixed = at::scaled_dot_product_attention(as_head(qkv.narrow(3, 0, channels)), seen[0], seen[1]);
  }
  return mixed.reshape({qkv.size(0), qkv.size(1), qkv.size(2), channels});
}

}  // namespace sparsereel::models
