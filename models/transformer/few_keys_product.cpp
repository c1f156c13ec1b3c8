// Multiplies the output layer's weight by the values, and then by the attention weights.
#include "models/transformer/few_keys_product.h"

#include <ATen/ATen.h>

#include <vector>

#include "hilbert/error.h"
#include "models/transformer/shape_text.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kPadding = 8;    // attention_weights() pads keys to a multiple of this
constexpr int64_t kFp8Depth = 16;  // 8-bit products need a depth that is a multiple of this

int64_t padded_keys(const at::Tensor& v) {
  return (v.size(1) + kPadding - 1) / kPadding * kPadding;
}

/// Returns the layer's weight, unpacked and scaled: [out, heads, head_dim] in v's dtype.
at::Tensor weight_of_heads(const Linear& layer, const at::Tensor& v) {
  at::Tensor weight = layer.in(v.scalar_type()).weight.to(v.scalar_type());
  if (layer.is_fp8()) weight.mul_(layer.scale.unsqueeze(1));
  return weight.view({weight.size(0), v.size(-2), v.size(-1)});
}

/// Returns the layer that turns attention weights into the output; its weight is [out, heads * keys]. v has the values
/// of one batch entry: [heads, head_dim, keys], with keys padded to kPadding.
Linear layer_of_keys(const at::Tensor& weight, const at::Tensor& v, const Linear& layer) {
  const at::Tensor product = at::bmm(weight.transpose(0, 1), v);  // [heads, out, keys]
  const at::Tensor of_keys = product.transpose(0, 1).flatten(1);
  if (!layer.is_fp8()) return {.weight = of_keys, .bias = layer.bias};
  const Activation rows = quantize_rows(of_keys);
  return {.weight = rows.values, .bias = layer.bias, .scale = rows.scale.view({-1})};
}

/// Returns the attention weights of batch entry b: [N, heads * keys].
Activation weights_of_entry(const attention::Result& weights, int64_t b, at::ScalarType dtype) {
  const at::Tensor rows = weights.out[b].flatten(1);
  if (!weights.out_scale.defined()) return rows;
  return {rows, weights.out_scale[b].expand({rows.size(0), 1}).contiguous(), dtype};
}

}  // namespace

bool is_less_work(const at::Tensor& v, const Linear& layer) {
  const int64_t keys = padded_keys(v);
  return v.scalar_type() != at::kHalf && 2 * keys <= v.size(3) &&
         (!layer.is_fp8() || v.size(2) * keys % kFp8Depth == 0);
}

at::Tensor linear_of_weights(const attention::Result& weights, const at::Tensor& v, const Linear& layer) {
  const at::IntArrayRef p = weights.out.sizes();
  if (p.size() != 4 || p[0] != v.size(0) || p[2] != v.size(2) || p[3] != padded_keys(v))
    throw bad_input("weights " + shape_of(weights.out) + " do not fit values " + shape_of(v),
                    "pass P [B, N, heads, keys] and v [B, keys, heads, head_dim] of one call");
  const at::Tensor weight = weight_of_heads(layer, v);
  const at::Tensor keys = at::constant_pad_nd(v.permute({0, 2, 3, 1}), {0, padded_keys(v) - v.size(1)});
  std::vector<at::Tensor> entries;
  for (int64_t b = 0; b < v.size(0); ++b)
    entries.push_back(linear(weights_of_entry(weights, b, v.scalar_type()), layer_of_keys(weight, keys[b], layer)));
  return entries.size() == 1 ? entries[0].unsqueeze(0) : at::stack(entries);
}

}  // namespace sparsereel::models
