// Layer norms, RMS norms and modulation. Fused kernels compute fp32 on a CPU (row_kernels.h) and fp16 and bf16 on a GPU
// (cuda/launch.h). Torch's operators compute the rest.
#include "models/layers/norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "models/layers/fp8.h"
#include "models/layers/row_kernels.h"
#ifdef SPARSEREEL_CUDA
#include "models/layers/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

// Least rows per thread. A row has a few KB, and with fewer rows, starting a thread takes longer than the work.
constexpr int64_t kRowGrain = 16;

// Returns true for fp32 x [B, N, C] on a CPU with consecutive rows of C floats. The batch stride may be longer.
bool use_row_kernels(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.stride(2) == 1 && x.stride(1) == x.size(2);
}

at::Tensor to_fp32(const at::Tensor& x) {
  return x.defined() ? x.to(at::kFloat) : x;
}

#ifdef SPARSEREEL_CUDA
// Returns true if the CUDA kernels take x and this modulation. They use one row_of_token for all vectors, so gates and
// modulation must share it.
bool is_for_kernels(const at::Tensor& x, const JointModulation& modulation, const JointModulation& gates = {}) {
  return has_norm_kernel(x) && (!gates.video.gate.defined() || gates.row_of_token.is_same(modulation.row_of_token));
}
#endif

struct TokenRange {
  int64_t first, count;
  const Modulation* modulation;
  // int64 [B, count], contiguous: the row of the modulation's vectors that each token uses. Undefined if each token
  // uses the row of its batch entry.
  at::Tensor rows;
};

std::vector<TokenRange> parts_of(const at::Tensor& x, int64_t video_tokens, const JointModulation& modulation) {
  std::vector<TokenRange> parts = {{0, video_tokens, &modulation.video, {}}};
  if (video_tokens < x.size(1)) parts.push_back({video_tokens, x.size(1) - video_tokens, &modulation.text, {}});
  for (TokenRange& part : parts)
    if (const at::Tensor& rows = modulation.row_of_token; rows.defined())
      part.rows = rows.narrow(1, part.first, part.count).contiguous();
  return parts;
}

// Looks up the rows of vectors [R, C] for the part's tokens. Returns [B, count, C], or [B, 1, C] if all tokens of a
// batch entry share one row.
at::Tensor of_tokens(const at::Tensor& vectors, const TokenRange& part) {
  if (!part.rows.defined()) return vectors.unsqueeze(1);
  return vectors.index_select(0, part.rows.view(-1)).unflatten(0, part.rows.sizes());
}

// Tokens begin to end - 1 of batch entry `entry`. All use row `row` of the modulation's vectors.
struct SharedRow {
  int64_t entry, row, begin, end;
};

// Splits the part's tokens into runs that share a row, and calls body for each run, on all threads.
void for_runs(int64_t batch, const TokenRange& part, const std::function<void(const SharedRow&)>& body) {
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t* rows = part.rows.defined() ? part.rows.const_data_ptr<int64_t>() + b * part.count : nullptr;
    const auto row_of = [&](int64_t token) { return rows[token - part.first]; };
    at::parallel_for(part.first, part.first + part.count, kRowGrain, [&](int64_t begin, int64_t end) {
      if (rows == nullptr) return body({b, b, begin, end});
      for (int64_t first = begin, stop = begin; first < end; first = stop) {
        while (stop < end && row_of(stop) == row_of(first)) ++stop;
        body({b, row_of(first), first, stop});
      }
    });
  }
}

// Returns norm(x) * (1 + scale) + shift as an affine norm, with weight * (1 + scale) and bias * (1 + scale) + shift.
Norm fold(const Norm& norm, const Modulation& modulation) {
  const at::Tensor scale = modulation.scale + 1;
  const at::Tensor weight = norm.weight.defined() ? scale * norm.weight : scale;
  const at::Tensor shift = norm.bias.defined() ? scale * norm.bias + modulation.shift : modulation.shift;
  return {weight.contiguous(), shift.contiguous(), norm.rms};
}

void norm_rows(const at::Tensor& x, at::Tensor& out, const Norm& folded, double eps, const SharedRow& run) {
  const int64_t channels = x.size(2);
  layer_norm_rows({.input = x.const_data_ptr<float>() + run.entry * x.stride(0) + run.begin * channels,
                   .output = out.mutable_data_ptr<float>() + run.entry * out.stride(0) + run.begin * channels,
                   .weight = folded.weight.const_data_ptr<float>() + run.row * channels,
                   .bias = folded.bias.const_data_ptr<float>() + run.row * channels,
                   .rows = run.end - run.begin,
                   .channels = channels,
                   .eps = static_cast<float>(eps),
                   .centers = !folded.rms});
}

void gate_rows(at::Tensor& x, const at::Tensor& update, const at::Tensor& gate, const SharedRow& run) {
  const int64_t channels = x.size(2);
  add_gated_rows({.residual = x.mutable_data_ptr<float>() + run.entry * x.stride(0) + run.begin * channels,
                  .update = update.const_data_ptr<float>() + run.entry * update.stride(0) + run.begin * channels,
                  .gate = gate.const_data_ptr<float>() + run.row * channels,
                  .rows = run.end - run.begin,
                  .channels = channels});
}

// Computes to = rms_norm(x) * factor, or with `adds`, to += rms_norm(x) * factor. use_row_kernels() must be true for x
// and `to`.
void rms_norm_all_rows(const at::Tensor& x, at::Tensor& to, const at::Tensor& factor, double eps, bool adds) {
  const at::Tensor factors = factor.to(at::kFloat).contiguous();
  const int64_t channels = x.size(2);
  for_runs(x.size(0), {0, x.size(1), nullptr, {}}, [&](const SharedRow& run) {
    rms_norm_rows({.input = x.const_data_ptr<float>() + run.entry * x.stride(0) + run.begin * channels,
                   .output = to.mutable_data_ptr<float>() + run.entry * to.stride(0) + run.begin * channels,
                   .factor = factors.const_data_ptr<float>() + run.row * channels,
                   .rows = run.end - run.begin,
                   .channels = channels,
                   .eps = static_cast<float>(eps),
                   .adds = adds});
  });
}

// Returns rms_norm_modulate() in fp32, computed with torch's operators.
at::Tensor rms_norm_modulate_wide(const at::Tensor& x, double eps, const at::Tensor& factor) {
  const at::Tensor normed = at::rms_norm(x.to(at::kFloat), {x.size(2)}, {}, eps);
  return normed * factor.to(at::kFloat).unsqueeze(1);
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const Norm& norm, double eps) {
#ifdef SPARSEREEL_CUDA
  if (x.dim() == 3 && has_norm_kernel(x))
    return norm_modulate_on_cuda(x, {}, nullptr, norm, eps, x.size(1), nullptr).values;
#endif
  if (!norm.rms) return at::layer_norm(x, {x.size(-1)}, norm.weight, norm.bias, eps);
  const auto weight = norm.weight.defined() ? std::optional(norm.weight) : std::nullopt;
  const at::Tensor normed = at::rms_norm(x, {x.size(-1)}, weight, eps);
  return norm.bias.defined() ? normed + norm.bias : normed;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor x32 = x.to(at::kFloat);
  const at::Tensor normed = x32 * at::rsqrt((x32 * x32).mean(-1, /*keepdim=*/true) + eps);
  return weight * normed.to(weight.scalar_type());
}

at::Tensor layer_norm_modulate(const at::Tensor& x, const Norm& norm, double eps, int64_t video_tokens,
                               const JointModulation& modulation) {
#ifdef SPARSEREEL_CUDA
  if (is_for_kernels(x, modulation))
    return norm_modulate_on_cuda(x, {}, nullptr, norm, eps, video_tokens, &modulation).values;
#endif
  if (!use_row_kernels(x)) {
    const Norm wide = {to_fp32(norm.weight), to_fp32(norm.bias), norm.rms};
    at::Tensor out = layer_norm(x.to(at::kFloat), wide, eps);
    for (const TokenRange& part : parts_of(x, video_tokens, modulation)) {
      out.narrow(1, part.first, part.count)
          .mul_(of_tokens(to_fp32(part.modulation->scale) + 1, part))
          .add_(of_tokens(part.modulation->shift, part));
    }
    return out.to(x.scalar_type());
  }
  at::Tensor out = at::empty(x.sizes(), x.options());
  for (const TokenRange& part : parts_of(x, video_tokens, modulation)) {
    const Norm folded = fold(norm, *part.modulation);
    for_runs(x.size(0), part, [&](const SharedRow& run) { norm_rows(x, out, folded, eps, run); });
  }
  return out;
}

void add_gated_(at::Tensor& x, const at::Tensor& update, int64_t video_tokens, const JointModulation& modulation) {
  if (!modulation.video.gate.defined()) {
    x.add_(update);
    return;
  }
#ifdef SPARSEREEL_CUDA
  if (is_for_kernels(x, modulation)) return add_gated_on_cuda(x, update, video_tokens, modulation);
#endif
  const bool fused = use_row_kernels(x) && use_row_kernels(update);
  for (const TokenRange& part : parts_of(x, video_tokens, modulation)) {
    const at::Tensor gate = to_fp32(part.modulation->gate).contiguous();
    if (!fused) {
      x.narrow(1, part.first, part.count).add_(of_tokens(gate, part) * update.narrow(1, part.first, part.count));
      continue;
    }
    for_runs(x.size(0), part, [&](const SharedRow& run) { gate_rows(x, update, gate, run); });
  }
}

at::Tensor add_gated_norm_modulate_(at::Tensor& x, const at::Tensor& update, const JointModulation& gates,
                                    const Norm& norm, double eps, int64_t video_tokens,
                                    const JointModulation& modulation) {
#ifdef SPARSEREEL_CUDA
  if (is_for_kernels(x, modulation, gates))
    return norm_modulate_on_cuda(x, update, &gates, norm, eps, video_tokens, &modulation).values;
#endif
  const bool share_rows = gates.row_of_token.is_same(modulation.row_of_token);
  if (!use_row_kernels(x) || !use_row_kernels(update) || !gates.video.gate.defined() || !share_rows) {
    add_gated_(x, update, video_tokens, gates);
    return layer_norm_modulate(x, norm, eps, video_tokens, modulation);
  }
  at::Tensor out = at::empty(x.sizes(), x.options());
  const std::vector<TokenRange> gated = parts_of(x, video_tokens, gates), parts = parts_of(x, video_tokens, modulation);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Norm folded = fold(norm, *parts[i].modulation);
    const at::Tensor gate = gated[i].modulation->gate.contiguous();
    for_runs(x.size(0), parts[i], [&](const SharedRow& run) {
      SharedRow few = run;
      // Takes so few rows at a time that the norm still finds them in the cache.
      for (; few.begin < run.end; few.begin = few.end) {
        few.end = std::min(few.begin + kRowGrain, run.end);
        gate_rows(x, update, gate, few);
        norm_rows(x, out, folded, eps, few);
      }
    });
  }
  return out;
}

at::Tensor rms_norm_modulate(const at::Tensor& x, double eps, const at::Tensor& factor) {
#ifdef SPARSEREEL_CUDA
  if (has_norm_kernel(x)) return rms_norm_on_cuda(x, {}, 0, {}, eps, factor).values;
#endif
  if (!use_row_kernels(x)) return rms_norm_modulate_wide(x, eps, factor).to(x.scalar_type());
  at::Tensor out = at::empty(x.sizes(), x.options());
  rms_norm_all_rows(x, out, factor, eps, /*adds=*/false);
  return out;
}

void add_rms_normed_(at::Tensor& x, const at::Tensor& update, double eps, const at::Tensor& gate) {
#ifdef SPARSEREEL_CUDA
  if (has_norm_kernel(x)) return static_cast<void>(rms_norm_on_cuda(x, update, eps, gate, 0, {}));
#endif
  if (use_row_kernels(x) && use_row_kernels(update)) return rms_norm_all_rows(update, x, gate, eps, /*adds=*/true);
  x.add_(rms_norm_modulate_wide(update, eps, gate));
}

Activation add_rms_normed_modulate_(at::Tensor& x, const at::Tensor& update, double update_eps, const at::Tensor& gate,
                                    double eps, const at::Tensor& factor, const RowFormat& format) {
#ifdef SPARSEREEL_CUDA
  if (has_norm_kernel(x)) return rms_norm_on_cuda(x, update, update_eps, gate, eps, factor, format);
#endif
  if (update.defined()) add_rms_normed_(x, update, update_eps, gate);
  const at::Tensor normed = rms_norm_modulate(x, eps, factor);
  return in_format(normed, format);
}

Activation norm_modulate_quantize_(at::Tensor& x, const at::Tensor& update, const JointModulation& gates,
                                   const Norm& norm, double eps, int64_t video_tokens,
                                   const JointModulation& modulation, const RowFormat& format) {
#ifdef SPARSEREEL_CUDA
  if (is_for_kernels(x, modulation, gates))
    return norm_modulate_on_cuda(x, update, &gates, norm, eps, video_tokens, &modulation, format);
#endif
  if (!update.defined()) return in_format(layer_norm_modulate(x, norm, eps, video_tokens, modulation), format);
  return in_format(add_gated_norm_modulate_(x, update, gates, norm, eps, video_tokens, modulation), format);
}

}  // namespace sparsereel::models
