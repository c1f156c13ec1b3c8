// Runs the CUDA kernels of the prologue on tensors.
#include "attention/prologue_call.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "attention/cuda/launch.h"
#include "attention/cuda_binding.h"
#include "attention/tensor_call.h"

namespace sparsereel::attention {

namespace {

/// Returns the prologue without weights, biases and moments. `kept` keeps the tensors behind its pointers alive.
cuda::Prologue unweighted_prologue(const Prologue& from, Kept& kept) {
  return {.norm = from.norm,
          .across_heads = from.across_heads,
          .eps = static_cast<float>(from.eps),
          .rotary_pairs = kept.pairs(from),
          .rotary_tokens = rotary_tokens(from),
          .interleaved = from.interleaved,
          .rotary_positions = kept.pointer(from.rotary_positions),
          .rotary_frequencies = kept.pointer(from.rotary_frequencies)};
}

cuda::TokenRows token_rows(const at::Tensor& x) {
  const auto size = [&](int64_t axis) { return static_cast<int>(x.size(axis)); };
  return {size(0), size(1), size(2), size(3), element_of(x), rows_of(x)};
}

}  // namespace

at::Tensor moments_for(int64_t tokens, const cuda::Prologue& prologue, const at::Tensor& like) {
  if (!prologue.normalizes_across_heads()) return {};
  return at::empty({tokens, 2}, like.options().dtype(at::kFloat));
}

bool has_prologue_kernel(const at::Tensor& x) {
  return is_half_on_cuda(x) && x.size(3) % (2 * kVector) == 0 && x.size(3) <= 256;
}

at::Tensor prologue_on_cuda(const Prologue& prologue, const at::Tensor& x, const RowNorm& norm, int64_t text_tokens) {
  const c10::DeviceGuard guard(x.device());
  Kept kept;
  const at::Tensor in = loadable(x);
  at::Tensor out = at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  cuda::PrologueRows rows{token_rows(in)};
  rows.out = rows_of(out);
  rows.prologue = unweighted_prologue(prologue, kept);
  if (norm.text_weight.defined()) rows.prologue.rotary_tokens = static_cast<int>(x.size(1) - text_tokens);
  rows.norm = {kept.pointer(norm.weight), kept.pointer(norm.bias), kept.pointer(norm.text_weight),
               kept.pointer(norm.moments)};
  const at::Tensor moments =
      norm.moments.defined() ? at::Tensor() : moments_for(x.size(0) * x.size(1), rows.prologue, x);
  rows.moments = pointer_of(moments);
  check_launch(cuda::apply_prologue(rows, current_stream(x.device())), "prologue");
  return out;
}

at::Tensor moments_on_cuda(const Prologue& prologue, const at::Tensor& x) {
  const c10::DeviceGuard guard(x.device());
  const at::Tensor in = loadable(x);
  at::Tensor moments = at::empty({x.size(0), x.size(1), 2}, x.options().dtype(at::kFloat));
  const cuda::MomentRows rows{token_rows(in), prologue.norm == Prologue::Norm::layer, static_cast<float>(prologue.eps),
                              moments.mutable_data_ptr<float>()};
  check_launch(cuda::find_moments(rows, current_stream(x.device())), "moments");
  return moments;
}

}  // namespace sparsereel::attention
