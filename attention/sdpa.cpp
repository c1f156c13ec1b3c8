// Computes full attention with torch under the masks of a context. The means of dropped blocks are appended to the keys
// and values.
#include "attention/sdpa.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "attention/cpu/kernel_params.h"

namespace sparsereel::attention {
namespace {

/// Returns a mask that is true where a query sees a key. It can be broadcast to [B, H, Nq, Nk]; it is undefined if
/// every query sees every key.
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

/// Turns a mask of visible pairs into a bias in the dtype of `like`: 0 where a query sees a key, -inf elsewhere.
at::Tensor bias_of(const at::Tensor& visible, const at::Tensor& like) {
  return at::zeros(visible.sizes(), like.options())
      .masked_fill_(visible.logical_not(), -std::numeric_limits<double>::infinity());
}

/// Returns a mask of blocks, bool [B, 1, query blocks, key blocks]. It is true for blocks that means replace if the
/// caller's map drops them.
at::Tensor blocks_with_means(const Context& context, int64_t queries, int64_t keys) {
  const BlockMap& map = *context.block_map;
  const at::Tensor lengths = context.key_lengths.defined() ? context.key_lengths.cpu().contiguous() : at::Tensor();
  cpu::KernelParams params;
  params.queries = queries;
  params.keys = keys;
  params.text_tokens = context.text_tokens;
  params.causal = context.causal;
  if (lengths.defined()) params.key_lengths = lengths.const_data_ptr<int64_t>();
  params.mean_cell = context.policy.cell;
  at::Tensor count = at::empty({map.batch, 1, map.query_blocks, 1}, at::kLong);
  for (int64_t b = 0; b < map.batch; ++b)
    for (int64_t i = 0; i < map.query_blocks; ++i) count[b][0][i][0] = params.blocks_with_means(b, i);
  return at::arange(map.key_blocks, at::kLong) < count;
}

/// The keys and values of a call, and the bias added to their scores, [B, H, Nq, keys].
struct Biased {
  at::Tensor k, v, bias;
};

/// Appends the means of all blocks of 64 video keys to the keys and values. The bias hides a mean where the caller's
/// map keeps its block. k and v are [B, H, N, D].
Biased with_means(const Context& context, const at::Tensor& k, const at::Tensor& v, const at::Tensor& visible) {
  const BlockMap& map = *context.block_map;
  const int64_t keys = k.size(2), queries = visible.size(2), cell = context.policy.cell;
  const int64_t whole = cpu::video_part(keys, context.text_tokens) / kBlock;
  const at::Tensor kept = at::tensor(at::ArrayRef<uint8_t>(map.bits), at::kByte)
                              .view({map.batch, map.heads, map.query_blocks, map.key_blocks})
                              .to(at::kBool);
  const at::Tensor counts = blocks_with_means(context, queries, keys).logical_and(kept.logical_not());
  const at::Tensor pairs = counts.narrow(3, 0, whole).to(k.device()).repeat_interleave(kBlock, 2);
  const at::Tensor cells = pairs.narrow(2, 0, queries).repeat_interleave(kBlock / cell, 3);
  const auto means = [&](const at::Tensor& x) {
    return x.narrow(2, 0, whole * kBlock).unflatten(2, {whole * kBlock / cell, cell}).mean(3);
  };
  return {.k = at::cat({k, means(k)}, 2),
          .v = at::cat({v, means(v)}, 2),
          .bias = at::cat({bias_of(visible, k), bias_of(cells, k) + std::log(static_cast<double>(cell))}, 3)};
}

/// Computes the log-sum-exp in a separate pass, because not every backend of torch returns it. Takes 256 queries at a
/// time to save memory.
at::Tensor log_sum_exp(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask, double scale) {
  constexpr int64_t chunk = 256;
  const int64_t queries = q.size(2);
  at::Tensor lse = at::empty({q.size(0), q.size(1), queries}, q.options().dtype(at::kFloat));
  const at::Tensor keys = k.to(at::kFloat).repeat_interleave(q.size(1) / k.size(1), 1).transpose(2, 3);
  for (int64_t first = 0; first < queries; first += chunk) {
    const int64_t count = std::min(chunk, queries - first);
    at::Tensor scores = at::matmul(q.narrow(2, first, count).to(at::kFloat), keys).mul_(scale);
    if (mask.defined()) {
      const at::Tensor part = mask.size(2) == 1 ? mask : mask.narrow(2, first, count);
      if (part.scalar_type() == at::kBool) {
        scores.masked_fill_(part.logical_not(), -std::numeric_limits<float>::infinity());
      } else {
        scores.add_(part);
      }
    }
    lse.narrow(2, first, count).copy_(at::logsumexp(scores, {3}));
  }
  return lse;
}

}  // namespace

SdpaResult sdpa(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context, double scale) {
  const at::Tensor qt = q.transpose(1, 2);
  at::Tensor kt = k.transpose(1, 2), vt = v.transpose(1, 2);  // [B, H, N, D] views
  const bool plainly_causal = context.causal && q.size(1) == k.size(1) && !context.key_lengths.defined() &&
                              !context.key_bias.defined() && !context.block_map;
  const bool masked = context.causal || context.key_lengths.defined() || context.block_map.has_value();
  const bool needs_mask = masked && (!plainly_causal || context.return_lse);
  at::Tensor mask = needs_mask ? visible_pairs(context, q.size(1), k.size(1), q.device()) : at::Tensor();
  if (context.block_map && context.policy.dropped == Dropped::mean) {
    const Biased all = with_means(context, kt, vt, mask);
    kt = all.k;
    vt = all.v;
    mask = all.bias;
  }
  if (context.key_bias.defined()) {
    const auto dtype = k.is_cpu() ? at::kFloat : k.scalar_type();  // torch's GPU kernels require this dtype
    const at::Tensor bias = context.key_bias.to(dtype).view({k.size(0), 1, 1, k.size(1)});
    mask = mask.defined() ? bias_of(mask, k) + bias : bias;
  }
  SdpaResult result;
  const std::optional<at::Tensor> given =
      mask.defined() && !plainly_causal ? std::optional<at::Tensor>(mask) : std::nullopt;
  const bool grouped = qt.size(1) != kt.size(1);
  at::Tensor out = at::scaled_dot_product_attention(qt, kt, vt, given, 0.0, plainly_causal, scale, grouped);
  if (needs_mask && given) {
    const at::Tensor counts = mask.scalar_type() == at::kBool ? mask : at::isneginf(mask).logical_not();
    out = out.masked_fill(counts.any(3, true).logical_not(), 0);  // some backends give NaN for a query that sees no key
  }
  result.out = out.transpose(1, 2);
  if (context.return_lse) result.lse = log_sum_exp(qt, kt, mask, scale);
  return result;
}

}  // namespace sparsereel::attention
