// Folds the padding of each text into two rows, with biases that give them the weight of all padding rows. One row
// would not do, because a single bias loses too much when it is rounded to bf16.
#include "models/transformer/text_padding.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

namespace sparsereel::models {
namespace {

/// Returns two biases [B, 1] with which two keys together weigh as much as `counts` [B, 1] keys. Torch's GPU kernels
/// take biases in the keys' dtype. A single bias log n, rounded to bf16, would count up to 1.6% too many or too few
/// keys (3.2% from n = e^8 on). So the first bias stands for about 31/32 of the keys and is rounded to bf16 here; 31/32
/// keeps it below n after rounding. The second bias stands for the exact rest, and its own rounding hardly matters.
std::pair<at::Tensor, at::Tensor> biases_of(const at::Tensor& counts) {
  const at::Tensor first = (counts * (31.0 / 32)).log().to(at::kBFloat16).to(at::kFloat);
  return {first, (counts - first.exp()).log()};
}

}  // namespace

FoldedText fold_padding(const at::Tensor& text, const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return {.rows = text, .bias = {}};
  const int64_t length = text.size(1);
  const at::Tensor padding = (length - at::tensor(lengths, at::kLong)).clamp_min(1);
  const int64_t kept = length - padding.min().item<int64_t>() + 2;
  if (2 * kept > length) return {.rows = text, .bias = {}};
  const at::Tensor counts = padding.unsqueeze(1), place = at::arange(kept).unsqueeze(0) - (length - counts);
  const auto [first, second] = biases_of(counts.to(at::kFloat));
  const at::Tensor bias = at::where(place.eq(0), first, second)
                              .masked_fill(place.lt(0), 0)
                              .masked_fill(place.gt(1), -std::numeric_limits<float>::infinity());
  return {.rows = text.narrow(1, 0, kept), .bias = bias.to(text.device())};
}

}  // namespace sparsereel::models
