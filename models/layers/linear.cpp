// Computes linear layers: fp32 on a CPU with oneDNN's fused operator, GELU on a GPU in cuBLASLt's epilogue (through a
// torch operator), everything else with torch.
#include "models/layers/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <optional>
#include <utility>

#include "models/layers/cpu_threads.h"
#include "models/layers/int8.h"

#ifdef SPARSEREEL_CUDA
#include "models/layers/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

// torch.compile's own linear operator for CPUs. No public header of torch declares it, so it is looked up among the
// registered operators.
const c10::TypedOperatorHandle<LinearPointwise>* onednn_linear() {
  static const auto handle = []() -> std::optional<c10::TypedOperatorHandle<LinearPointwise>> {
    const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!schema || !at::hasMKLDNN()) return std::nullopt;
    return schema->typed<LinearPointwise>();
  }();
  return handle ? &*handle : nullptr;
}

bool use_onednn(const at::Tensor& x, const Linear& layer) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && layer.weight.scalar_type() == at::kFloat && x.numel() > 0 &&
         onednn_linear() != nullptr && gives_all_threads();
}

at::Tensor run_onednn(const at::Tensor& x, const Linear& layer, std::string_view activation,
                      std::string_view algorithm) {
  const std::optional<at::Tensor> bias = layer.bias.defined() ? std::optional(layer.bias) : std::nullopt;
  return onednn_linear()->call(x.contiguous(), layer.weight, bias, activation, c10::List<std::optional<at::Scalar>>(),
                               algorithm);
}

// If x is 3D and its rows are not contiguous, torch adds the bias in a separate pass over memory. A 2D view avoids this
// pass. Such rows come from attention that wrote its output over its queries.
at::Tensor run_torch(const at::Tensor& x, const Linear& layer) {
  if (!layer.bias.defined()) return at::linear(x, layer.weight);
  const bool is_matrix = x.dim() == 3 && (x.size(0) == 1 || x.stride(0) == x.size(1) * x.stride(1));
  if (!is_matrix || x.is_contiguous()) return at::linear(x, layer.weight, layer.bias);
  return at::linear(x.flatten(0, 1), layer.weight, layer.bias).view({x.size(0), x.size(1), -1});
}

// torch passes bias and GELU (by the tanh approximation) to cuBLASLt's epilogue, which saves a pass over memory.
at::Tensor run_gelu_epilogue(const at::Tensor& x, const Linear& layer) {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = layer.weight.size(0);
  return at::_addmm_activation(layer.bias, rows, layer.weight.t(), 1, 1, /*use_gelu=*/true).view(sizes);
}

}  // namespace

RowFormat format_for(const at::Tensor& x, const Linear& layer) {
  if (layer.is_fp8()) return {.kind = RowFormat::e4m3};
  if (const std::optional<int64_t> rotation = shared_rotation(x, layer))
    return {.kind = RowFormat::int8, .rotation = *rotation};
  return {};
}

at::Tensor linear(const Activation& x, const Linear& layer) {
  if (multiplies_in_int8(x, layer)) return int8_linear(x, layer);
  if (!layer.rows.empty()) return linear(x, layer.in(x.dtype));
  if (layer.is_fp8())
    return fp8_product(x.is_fp8() ? x : quantize_rows(x.values), layer.weight, layer.scale, layer.bias);
  return use_onednn(x.values, layer) ? run_onednn(x.values, layer, "none", "") : run_torch(x.values, layer);
}

void linear_out(const at::Tensor& out, const Activation& x, const Linear& layer) {
  const bool is_int8 = multiplies_in_int8(x, layer);
  if (!layer.rows.empty() && !is_int8) return linear_out(out, x, layer.in(x.dtype));
  if (is_int8 || layer.is_fp8() || !x.values.is_cuda() || layer.bias.defined()) {
    at::Tensor(out).copy_(linear(x, layer));
    return;
  }
  for (int64_t b = 0; b < out.size(0); ++b) {
    at::Tensor part = out[b];
    at::mm_out(part, x.values[b], layer.weight.t());
  }
}

at::Tensor linear_gelu(const Activation& x, const Linear& layer) {
  const bool is_int8 = multiplies_in_int8(x, layer);
  if (!layer.rows.empty() && !is_int8) return linear_gelu(x, layer.in(x.dtype));
  if (!is_int8 && !layer.is_fp8() && use_onednn(x.values, layer)) return run_onednn(x.values, layer, "gelu", "none");
  at::Tensor y = linear(x, layer);
  return at::gelu_(y);
}

at::Tensor linear_gelu_tanh(const Activation& x, const Linear& layer) {
  const bool is_int8 = multiplies_in_int8(x, layer);
  if (!layer.rows.empty() && !is_int8) return linear_gelu_tanh(x, layer.in(x.dtype));
  if (!is_int8 && !layer.is_fp8() && use_onednn(x.values, layer)) return run_onednn(x.values, layer, "gelu", "tanh");
  if (!layer.is_fp8() && x.values.is_cuda() && layer.bias.defined()) return run_gelu_epilogue(x.values, layer);
  at::Tensor y = linear(x, layer);
  return at::gelu_(y, "tanh");
}

at::Tensor feed_forward_gelu_tanh(Activation x, const Linear& in, const Linear& out) {
  // If the first product is computed in 16 or 32 bits, it applies GELU itself.
  const bool makes_8_bits = in.is_fp8() || multiplies_in_int8(x, in);
  at::Tensor hidden =
      makes_8_bits ? linear(Activation(std::move(x)), in) : linear_gelu_tanh(Activation(std::move(x)), in);
  if (!makes_8_bits) return linear(hidden, out);
  const RowFormat format = format_for(hidden, out);
  if (format.kind == RowFormat::run_dtype) return linear(at::gelu_(hidden, "tanh"), out);
  return linear(gelu_tanh_quantize_rows_(hidden, format), out);
}

at::Tensor feed_forward_swiglu(const Activation& x, const Linear& in, const Linear& out) {
  const at::Tensor hidden = linear(x, in);
#ifdef SPARSEREEL_CUDA
  if (has_swiglu_kernel(hidden)) return linear(swiglu_on_cuda(hidden, out.is_fp8()), out);
#endif
  const std::vector<at::Tensor> parts = hidden.chunk(2, -1);
  return linear(at::silu(parts[1]).mul_(parts[0]), out);
}

std::vector<at::Tensor> linear_few_rows(const at::Tensor& x, at::ArrayRef<const Linear*> layers) {
#ifdef SPARSEREEL_CUDA
  if (has_projection_kernel(x, layers)) {
    RECORD_FUNCTION("sparsereel::linear_few_rows", std::vector<c10::IValue>());
    return project_on_cuda(x, layers);
  }
#endif
  std::vector<at::Tensor> results;
  for (const Linear* layer : layers) results.push_back(linear(x, *layer));
  return results;
}

}  // namespace sparsereel::models
