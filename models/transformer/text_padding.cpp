// Folds padding into two rows, with biases that give them the weight of all.
#include "models/transformer/text_padding.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

namespace sparsereel::models {
namespace {

/// Returns two biases [B, 1] that together weigh as much as `counts` [B, 1] keys. Torch's GPU kernels want biases in
/// the keys' dtype. A log n rounded to bf16 would count up to 1.6% too many or too few keys (3.2% from e^8 on). So the
/// first bias is exact in bf16 and stands for 31/32 of the keys, to stay below n when rounded. The second, a small
/// share, makes up the rest.
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
