// Quantizes rows to 8 bits and multiplies them. Our kernels quantize fp16 and bf16 on a GPU; torch's operators quantize
// everything else, with the same bits. torch computes matrix products through cuBLASLt and CUTLASS.
#include "models/layers/fp8.h"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "models/layers/cuda/e4m3.h"
#ifdef SPARSEREEL_CUDA
#include "attention/cuda/device.h"
#include "models/layers/cuda_call.h"
#endif

namespace sparsereel::models {
namespace {

/// Returns x weight^T times both scales, computed in fp32. A CPU has no products of e4m3 matrices.
at::Tensor emulated_product(const Activation& x, const at::Tensor& weight, const at::Tensor& scale) {
  const at::Tensor rows = x.values.reshape({-1, x.values.size(-1)}).to(at::kFloat);
  return at::linear(rows, weight.to(at::kFloat)).mul_(x.scale).mul_(scale);
}

/// Returns the product in bf16, because torch's e4m3 products have no other result type that works on every GPU.
at::Tensor gpu_product(const Activation& x, const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& bias) {
  const std::optional<at::Tensor> bf16 =
      bias.defined() ? std::optional(bias.to(at::kBFloat16)) : std::optional<at::Tensor>();
  return at::_scaled_mm(x.values.reshape({-1, x.values.size(-1)}), weight.t(), x.scale, scale.unsqueeze(0), bf16,
                        /*scale_result=*/{}, at::kBFloat16, /*use_fast_accum=*/true);
}

}  // namespace

Activation quantize_rows(const at::Tensor& x) {
#ifdef SPARSEREEL_CUDA
  if (has_quantize_kernel(x)) return quantize_on_cuda(x, {.kind = RowFormat::e4m3});
#endif
  const at::Tensor rows = x.reshape({-1, x.size(-1)}).to(at::kFloat);
  const at::Tensor scale = rows.abs().amax(1, /*keepdim=*/true).clamp_min_(kLeastE4m3Row).mul_(1 / kE4m3Most);
  return {(rows * scale.reciprocal()).to(at::kFloat8_e4m3fn).view(x.sizes()), scale, x.scalar_type()};
}

Activation in_format(const at::Tensor& x, const RowFormat& format) {
  if (format.kind == RowFormat::run_dtype) return x;
#ifdef SPARSEREEL_CUDA
  if (format.kind == RowFormat::int8) return quantize_on_cuda(x, format);
#endif
  return quantize_rows(x);
}

Activation gelu_tanh_quantize_rows_(at::Tensor& x, const RowFormat& format) {
#ifdef SPARSEREEL_CUDA
  if (has_quantize_kernel(x)) return quantize_on_cuda(x, format, /*gelu=*/true);
#endif
  return in_format(at::gelu_(x, "tanh"), format);
}

at::Tensor fp8_product(const Activation& x, const at::Tensor& weight, const at::Tensor& scale, const at::Tensor& bias) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  if (x.values.is_cuda()) return gpu_product(x, weight, scale, bias).to(x.dtype).view(sizes);
  at::Tensor y = emulated_product(x, weight, scale);
  if (bias.defined()) y.add_(bias);
  return y.to(x.dtype).view(sizes);
}

std::string why_no_fp8(at::Device device) {
  if (device.is_cpu() || device.is_meta()) return {};
#ifdef SPARSEREEL_CUDA
  const int capability = attention::cuda::compute_capability(device.has_index() ? device.index() : 0);
  if (capability >= attention::cuda::kE4m3Capability) return {};
  return "products in 8-bit floating point need compute capability 8.9 or newer, but this GPU has " +
         std::to_string(capability / 10) + "." + std::to_string(capability % 10);
#else
  return "this build has no CUDA kernels";
#endif
}

std::string faster_8_bits([[maybe_unused]] at::Device device) {
#ifdef SPARSEREEL_CUDA
  constexpr int kHopper = 90, kGeForceBlackwell = 120;
  const int capability =
      device.is_cuda() ? attention::cuda::compute_capability(device.has_index() ? device.index() : 0) : 0;
  if (capability >= kHopper && capability < kGeForceBlackwell) return "fp8";
#endif
  return "int8";
}

}  // namespace sparsereel::models
