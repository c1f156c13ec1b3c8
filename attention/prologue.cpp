// Checks and runs the prologue. Our CPU code runs it for fp32 tensors on a CPU, and a kernel for fp16 and bf16 tensors
// on a GPU, each in one pass over memory. torch's operations run it for all other tensors.
#include "attention/prologue.h"

#include <ATen/ATen.h>

#include <sstream>

#include "attention/core/check.h"
#include "attention/cpu/prologue.h"
#include "attention/cpu_tensor.h"
#ifdef SPARSEREEL_CUDA
#include "attention/prologue_call.h"
#endif
#include "hilbert/error.h"

namespace sparsereel::attention {
namespace {

void check_vector(const at::Tensor& tensor, const std::string& field, int64_t size, const at::Tensor& like) {
  if (!tensor.defined()) return;
  if (tensor.dim() != 1 || tensor.size(0) != size || tensor.device() != like.device()) {
    std::ostringstream text;
    text << "attention: prologue " << field << " is " << tensor.sizes() << " on " << tensor.device();
    throw bad_input(text.str(), "pass [" + std::to_string(size) + "] on the device of q");
  }
}

void check_rotary(const at::Tensor& table, const std::string& field, int64_t tokens, const at::Tensor& like) {
  if (!table.defined()) return;
  if (table.dim() != 2 || table.size(0) != tokens || table.size(1) != like.size(3) ||
      table.scalar_type() != at::kFloat || table.device() != like.device()) {
    std::ostringstream text;
    text << "attention: prologue " << field << " is " << table.sizes() << " of " << table.scalar_type() << " on "
         << table.device();
    throw bad_input(text.str(), "pass fp32 [" + std::to_string(tokens) + ", " + std::to_string(like.size(3)) +
                                    "] (video tokens, head_dim) on the device of q");
  }
}

void check_floats(const at::Tensor& tensor, const std::string& field, at::IntArrayRef sizes, const at::Tensor& like) {
  if (!tensor.defined()) return;
  if (tensor.sizes() == sizes && tensor.scalar_type() == at::kFloat && tensor.device() == like.device()) return;
  std::ostringstream text, wanted;
  text << "attention: prologue " << field << " is " << tensor.sizes() << " of " << tensor.scalar_type() << " on "
       << tensor.device();
  wanted << "pass fp32 " << sizes << " on the device of q";
  throw bad_input(text.str(), wanted.str());
}

/// Normalizes x by given moments [B, N, 2]. Computes in fp32.
at::Tensor normalize_by(const at::Tensor& moments, const at::Tensor& x, const RowNorm& norm) {
  const at::Tensor each = moments.unsqueeze(2);
  at::Tensor rows = ((x.to(at::kFloat) - each.narrow(3, 0, 1)) * each.narrow(3, 1, 1)).flatten(2);
  if (norm.weight.defined()) rows = rows * norm.weight;
  if (norm.bias.defined()) rows = rows + norm.bias;
  return rows.to(x.scalar_type()).view(x.sizes());
}

at::Tensor normalize_alike(const Prologue& prologue, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias) {
  const at::Tensor rows = prologue.across_heads ? x.flatten(2) : x;
  const int64_t size = rows.size(-1);
  const auto optional = [&](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(t.to(x.scalar_type())) : std::nullopt;
  };
  at::Tensor normalized;
  if (prologue.norm == Prologue::Norm::layer) {
    normalized = at::layer_norm(rows, {size}, optional(weight), optional(bias), prologue.eps);
  } else {
    normalized = at::rms_norm(rows, {size}, optional(weight), prologue.eps);
    if (bias.defined()) normalized = normalized + bias.to(x.scalar_type());
  }
  return normalized.view(x.sizes());
}

at::Tensor normalize(const Prologue& prologue, const at::Tensor& x, const RowNorm& norm, int64_t text_tokens) {
  if (norm.moments.defined()) return normalize_by(norm.moments, x, norm);
  if (!norm.text_weight.defined() || text_tokens == 0) return normalize_alike(prologue, x, norm.weight, norm.bias);
  const int64_t video = x.size(1) - text_tokens;
  return at::cat({normalize_alike(prologue, x.narrow(1, 0, video), norm.weight, norm.bias),
                  normalize_alike(prologue, x.narrow(1, video, text_tokens), norm.text_weight, norm.bias)},
                 1);
}

/// Cosines and sines, fp32 [Nvideo, H or 1, D] each.
struct RotaryTables {
  at::Tensor cos, sin;
};

RotaryTables rotary_tables(const Prologue& prologue) {
  if (prologue.rotary_cos.defined()) return {prologue.rotary_cos.unsqueeze(1), prologue.rotary_sin.unsqueeze(1)};
  const at::Tensor& frequencies = prologue.rotary_frequencies;
  const at::Tensor axes = frequencies.transpose(0, 1).flatten(1);  // [3, H * D / 2]
  const at::Tensor angles = at::matmul(prologue.rotary_positions.narrow(1, 0, 3), axes)
                                .unflatten(1, {frequencies.size(0), -1})
                                .repeat_interleave(2, 2);
  return {angles.cos(), angles.sin()};
}

/// Rotates pairs of channels, (2i, 2i + 1) or (i, i + D / 2), as RoFormer does (arXiv 2104.09864). Computes in fp32.
at::Tensor rotate(const Prologue& prologue, const at::Tensor& x) {
  const auto [cos, sin] = rotary_tables(prologue);
  const int64_t video = cos.size(0);
  const at::Tensor head = x.narrow(1, 0, video).to(at::kFloat);
  at::Tensor turned;  // x, with each pair turned by 90 degrees
  if (prologue.interleaved) {
    const at::Tensor pairs = head.unflatten(3, {-1, 2});
    turned = at::stack({pairs.select(4, 1).neg(), pairs.select(4, 0)}, 4).flatten(3);
  } else {
    const int64_t half = x.size(3) / 2;
    turned = at::cat({head.narrow(3, half, half).neg(), head.narrow(3, 0, half)}, 3);
  }
  const at::Tensor rotated = head * cos + turned * sin;
  return at::cat({rotated.to(x.scalar_type()), x.narrow(1, video, x.size(1) - video)}, 1);
}

at::Tensor run_on_cpu(const Prologue& prologue, const at::Tensor& x, const RowNorm& norm, int64_t text_tokens) {
  std::vector<at::Tensor> kept;
  const auto array = [&](const at::Tensor& t) -> const float* {
    return t.defined() ? kept.emplace_back(t.to(at::kFloat).contiguous()).const_data_ptr<float>() : nullptr;
  };
  auto pointers = with_arrays<CallPrologue>(prologue, array, nullptr);
  pointers.rotary_tokens = rotary_tokens(prologue);
  at::Tensor out = at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  cpu::run_prologue({.batch = x.size(0),
                     .tokens = x.size(1),
                     .heads = x.size(2),
                     .head_dim = x.size(3),
                     .in = const_view(x),
                     .out = mutable_view(out),
                     .prologue = pointers,
                     .norm = {array(norm.weight), array(norm.bias), array(norm.text_weight), array(norm.moments)},
                     .text_tokens = text_tokens},
                    parallel_for);
  return out;
}

at::Tensor moments_on_cpu(const Prologue& prologue, const at::Tensor& x) {
  at::Tensor moments = at::empty({x.size(0), x.size(1), 2}, at::kFloat);
  cpu::find_moments({.batch = x.size(0),
                     .tokens = x.size(1),
                     .heads = x.size(2),
                     .head_dim = x.size(3),
                     .in = const_view(x),
                     .prologue = {.norm = prologue.norm, .across_heads = true, .eps = prologue.eps}},
                    moments.mutable_data_ptr<float>(), parallel_for);
  return moments;
}

at::Tensor apply(const Prologue& prologue, const at::Tensor& x, const RowNorm& norm, int64_t text_tokens) {
  const bool normalizes = prologue.norm != Prologue::Norm::none, rotates = prologue.rotates();
  if (!normalizes && !rotates) return x;
  if (x.is_cpu() && x.scalar_type() == at::kFloat) return run_on_cpu(prologue, x, norm, text_tokens);
#ifdef SPARSEREEL_CUDA
  if (has_prologue_kernel(x)) return prologue_on_cuda(prologue, x, norm, text_tokens);
#endif
  at::Tensor result = normalizes ? normalize(prologue, x, norm, text_tokens) : x;
  return rotates ? rotate(prologue, result) : result;
}

}  // namespace

at::Tensor rotary_pairs(const Prologue& prologue) {
  const auto first_of_pairs = [&](const at::Tensor& table) {
    return prologue.interleaved ? table.slice(1, 0, c10::nullopt, 2) : table.slice(1, 0, table.size(1) / 2);
  };
  return at::stack({first_of_pairs(prologue.rotary_cos), first_of_pairs(prologue.rotary_sin)}, 2).to(at::kHalf);
}

at::Tensor token_moments(const Prologue& prologue, const at::Tensor& x) {
  if (!prologue.normalizes_across_heads())
    throw bad_input("attention: token_moments() was called for a prologue without a norm across heads",
                    "call it only for a norm across heads");
  if (x.is_cpu() && x.scalar_type() == at::kFloat) return moments_on_cpu(prologue, x);
#ifdef SPARSEREEL_CUDA
  if (has_prologue_kernel(x)) return moments_on_cuda(prologue, x);
#endif
  const at::Tensor rows = x.to(at::kFloat).flatten(2);
  const bool centers = prologue.norm == Prologue::Norm::layer;
  const at::Tensor mean = centers ? rows.mean({2}, true) : at::zeros({x.size(0), x.size(1), 1}, rows.options());
  return at::cat({mean, (rows - mean).square().mean({2}, true).add(prologue.eps).rsqrt()}, 2);
}

int rotary_tokens(const Prologue& prologue) {
  const at::Tensor& rows = prologue.rotary_cos.defined() ? prologue.rotary_cos : prologue.rotary_positions;
  return rows.defined() ? static_cast<int>(rows.size(0)) : 0;
}

CallPrologue which_exist(const Prologue& prologue) {
  static constexpr float kSome = 0;
  return with_arrays<CallPrologue>(
      prologue, [](const at::Tensor& t) { return t.defined() ? &kSome : nullptr; }, nullptr);
}

void check_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k, int64_t text_tokens) {
  const auto size_of = [&](const at::Tensor& x) { return prologue.across_heads ? x.size(2) * x.size(3) : x.size(3); };
  check_vector(prologue.q_weight, "q_weight", size_of(q), q);
  check_vector(prologue.q_bias, "q_bias", size_of(q), q);
  check_vector(prologue.k_weight, "k_weight", size_of(k), k);
  check_vector(prologue.k_bias, "k_bias", size_of(k), k);
  check_vector(prologue.text_q_weight, "text_q_weight", q.size(3), q);
  check_vector(prologue.text_k_weight, "text_k_weight", q.size(3), q);
  const int64_t rotated = prologue.rotated_tokens(q.size(1), text_tokens);
  if (prologue.rotary_pairs.defined() && !prologue.rotary_cos.defined())
    throw bad_input("attention: prologue has rotary_pairs without rotary_cos",
                    "pass the tables from which the pairs were made");
  check_rotary(prologue.rotary_cos, "rotary_cos", rotated, q);
  check_rotary(prologue.rotary_sin, "rotary_sin", rotated, q);
  check_floats(prologue.rotary_positions, "rotary_positions", {rotated, 4}, q);
  check_floats(prologue.rotary_frequencies, "rotary_frequencies", {q.size(2), 3, q.size(3) / 2}, q);
  check_floats(prologue.q_moments, "q_moments", {q.size(0), q.size(1), 2}, q);
  check_floats(prologue.k_moments, "k_moments", {k.size(0), k.size(1), 2}, k);
}

QueriesAndKeys apply_prologue(const Prologue& prologue, const at::Tensor& q, const at::Tensor& k, int64_t text_tokens) {
  return {.q = apply(prologue, q, prologue.of_queries(), text_tokens),
          .k = apply(prologue, k, prologue.of_keys(), text_tokens)};
}

}  // namespace sparsereel::attention
