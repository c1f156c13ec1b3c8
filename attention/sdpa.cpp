// Builds the mask of a context and hands attention to torch.
#include "attention/sdpa.h"

#include <ATen/ATen.h>

#include <limits>

namespace sparsereel::attention {
namespace {

/// True where a query may see a key, broadcastable to [B, H, Nq, Nk]; undefined: everywhere.
at::Tensor visible_pairs(const Context& context, int64_t queries, int64_t keys, at::Device device) {
  at::Tensor mask;
  const auto add = [&mask](const at::Tensor& more) { mask = mask.defined() ? mask.logical_and(more) : more; };
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  if (context.causal)
    add((at::arange(keys, options).unsqueeze(0) <= at::arange(queries, options).unsqueeze(1) + (keys - queries))
            .view({1, 1, queries, keys}));
  if (context.key_lengths.defined())
    add(at::arange(keys, options).view({1, 1, 1, keys}) < context.key_lengths.to(device).view({-1, 1, 1, 1}));
  if (context.block_map) {
    const BlockMap& map = *context.block_map;
    const at::Tensor blocks = at::tensor(at::ArrayRef<uint8_t>(map.bits), at::kByte)
                                  .view({map.batch, map.heads, map.query_blocks, map.key_blocks})
                                  .to(device, at::kBool);
    add(blocks.repeat_interleave(kBlock, 2).narrow(2, 0, queries).repeat_interleave(kBlock, 3).narrow(3, 0, keys));
  }
  return mask;
}

/// torch gives no log-sum-exp on every backend, so it is computed beside, some queries at a time to bound memory.
at::Tensor log_sum_exp(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask, double scale) {
  constexpr int64_t chunk = 256;
  const int64_t queries = q.size(2);
  at::Tensor lse = at::empty({q.size(0), q.size(1), queries}, q.options().dtype(at::kFloat));
  const at::Tensor keys = k.to(at::kFloat).transpose(2, 3);
  for (int64_t first = 0; first < queries; first += chunk) {
    const int64_t count = std::min(chunk, queries - first);
    at::Tensor scores = at::matmul(q.narrow(2, first, count).to(at::kFloat), keys).mul_(scale);
    if (mask.defined()) {
      const at::Tensor part = mask.size(2) == 1 ? mask : mask.narrow(2, first, count);
      scores.masked_fill_(part.logical_not(), -std::numeric_limits<float>::infinity());
    }
    lse.narrow(2, first, count).copy_(at::logsumexp(scores, {3}));
  }
  return lse;
}

}  // namespace

SdpaResult sdpa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale) {
  const at::Tensor qt = q.transpose(1, 2), kt = k.transpose(1, 2), vt = v.transpose(1, 2);  // [B, H, N, D] views
  const bool plainly_causal =
      context.causal && q.size(1) == k.size(1) && !context.key_lengths.defined() && !context.block_map;
  const bool masked = context.causal || context.key_lengths.defined() || context.block_map.has_value();
  const bool needs_mask = masked && (!plainly_causal || context.return_lse);
  const at::Tensor mask = needs_mask ? visible_pairs(context, q.size(1), k.size(1), q.device()) : at::Tensor();
  SdpaResult result;
  const std::optional<at::Tensor> given =
      needs_mask && !plainly_causal ? std::optional<at::Tensor>(mask) : std::nullopt;
  at::Tensor out = at::scaled_dot_product_attention(qt, kt, vt, given, 0.0, plainly_causal, scale);
  if (given) out = out.masked_fill(mask.any(3, true).logical_not(), 0);  // a row without a key is NaN in some backends
  result.out = out.transpose(1, 2);
  if (context.return_lse) result.lse = log_sum_exp(qt, kt, mask, scale);
  return result;
}

}  // namespace sparsereel::attention
