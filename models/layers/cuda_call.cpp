// Converts tensors to pointers and strides for the elementwise kernels of layers/cuda.
#include "models/layers/cuda_call.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <utility>

#include "attention/cuda_binding.h"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda_scalar.h"

namespace sparsereel::models {

using attention::check_launch;
using attention::current_stream;
using attention::element_of;
using attention::is_half_on_cuda;
using attention::kVector;
using attention::on_16_bytes;

namespace {

bool rows_fit(const at::Tensor& x) {
  return x.stride(2) == 1 && x.stride(0) % kVector == 0 && x.stride(1) % kVector == 0 && on_16_bytes(x);
}

cuda::Rows rows_of(const at::Tensor& x) {
  return {.data = const_cast<void*>(x.const_data_ptr()), .batch_stride = x.stride(0), .row_stride = x.stride(1)};
}

/// Keeps the tensors behind the pointers of one call alive until its kernel is enqueued.
class Arguments {
 public:
  explicit Arguments(const at::Tensor& x) : x_(x) {}

  cuda::Rows rows(const at::Tensor& tensor) {
    return rows_of(keep(rows_fit(tensor) ? tensor : tensor.clone(at::MemoryFormat::Contiguous)));
  }

  /// Returns a vector [C] in x's dtype; null if `tensor` is undefined.
  const void* channels(const at::Tensor& tensor) {
    return tensor.defined() ? keep(tensor.to(x_.scalar_type()).contiguous()).const_data_ptr() : nullptr;
  }

  /// Returns vectors [B, C] in fp32.
  cuda::Vectors vector(const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    const at::Tensor rows = tensor.to(at::kFloat);
    const bool fits = rows.stride(1) == 1 && rows.stride(0) % 4 == 0 && on_16_bytes(rows);
    const at::Tensor& kept = keep(fits ? rows : rows.clone(at::MemoryFormat::Contiguous));
    return {.data = kept.const_data_ptr<float>(), .batch_stride = kept.stride(0)};
  }

  cuda::PartVectors vectors(const JointModulation* modulation, at::Tensor Modulation::*member) {
    if (modulation == nullptr) return {};
    return {.video = vector(modulation->video.*member), .text = vector(modulation->text.*member)};
  }

  /// Returns which row of the modulation's vectors (shift, scale and gate) each token uses. An empty result means that
  /// each token uses the row of its batch entry.
  cuda::EntryOfToken entry(const JointModulation* modulation) {
    if (modulation == nullptr || !modulation->row_of_token.defined()) return {};
    const Modulation& video = modulation->video;
    const at::Tensor& vectors = video.shift.defined() ? video.shift : video.gate;
    return {.data = keep(modulation->row_of_token.contiguous()).const_data_ptr<int64_t>(),
            .entries = static_cast<int>(vectors.size(0))};
  }

 private:
  const at::Tensor& keep(at::Tensor tensor) {
    kept_.push_back(std::move(tensor));
    return kept_.back();
  }

  const at::Tensor& x_;
  std::vector<at::Tensor> kept_;
};

/// Returns an uninitialized result of these sizes and this format, on x's device.
Activation empty_in(const RowFormat& format, const at::Tensor& x, at::IntArrayRef sizes) {
  if (format.kind == RowFormat::run_dtype) return at::empty(sizes, x.options());
  const at::ScalarType bytes = format.kind == RowFormat::int8 ? at::kChar : at::kFloat8_e4m3fn;
  return {at::empty(sizes, x.options().dtype(bytes)),
          at::empty({x.numel() / x.size(-1), 1}, x.options().dtype(at::kFloat)), x.scalar_type(), format};
}

cuda::EightBits bits_of(const RowFormat& format) {
  return {.int8 = format.kind == RowFormat::int8, .rotation = static_cast<int>(format.rotation)};
}

float* scales_of(const Activation& x) {
  return x.scale.defined() ? x.scale.mutable_data_ptr<float>() : nullptr;
}

}  // namespace

bool has_norm_kernel(const at::Tensor& x) {
  return is_half_on_cuda(x) && x.size(2) % kVector == 0 && x.size(2) <= cuda::kMaxNormChannels && x.numel() > 0 &&
         rows_fit(x);
}

Activation norm_modulate_on_cuda(const at::Tensor& x, const at::Tensor& update, const JointModulation* gates,
                                 const Norm& norm, double eps, int64_t video_tokens, const JointModulation* modulation,
                                 const RowFormat& format) {
  const c10::DeviceGuard guard(x.device());
  Arguments arguments(x);
  const Activation out = empty_in(format, x, x.sizes());
  const cuda::NormModulate call = {.batch = static_cast<int>(x.size(0)),
                                   .tokens = static_cast<int>(x.size(1)),
                                   .video_tokens = static_cast<int>(video_tokens),
                                   .channels = static_cast<int>(x.size(2)),
                                   .element = element_of(x),
                                   .residual = rows_of(x),
                                   .update = update.defined() ? arguments.rows(update) : cuda::Rows{},
                                   .out = rows_of(out.values),
                                   .to = bits_of(format),
                                   .out_scale = scales_of(out),
                                   .weight = arguments.channels(norm.weight),
                                   .bias = arguments.channels(norm.bias),
                                   .eps = static_cast<float>(eps),
                                   .centers = !norm.rms,
                                   .scale = arguments.vectors(modulation, &Modulation::scale),
                                   .shift = arguments.vectors(modulation, &Modulation::shift),
                                   .gate = arguments.vectors(gates, &Modulation::gate),
                                   .entry = arguments.entry(modulation)};
  check_launch(cuda::norm_modulate(call, current_stream(x.device())), "norm");
  return out;
}

Activation rms_norm_on_cuda(const at::Tensor& x, const at::Tensor& update, double update_eps, const at::Tensor& gate,
                            double eps, const at::Tensor& factor, const RowFormat& format) {
  if (format.kind == RowFormat::int8 && factor.defined())
    return quantize_on_cuda(rms_norm_on_cuda(x, update, update_eps, gate, eps, factor).values, format);
  const c10::DeviceGuard guard(x.device());
  Arguments arguments(x);
  const Activation out = factor.defined() ? empty_in(format, x, x.sizes()) : Activation(x);
  const cuda::RmsNormModulate call = {.batch = static_cast<int>(x.size(0)),
                                      .tokens = static_cast<int>(x.size(1)),
                                      .channels = static_cast<int>(x.size(2)),
                                      .element = element_of(x),
                                      .residual = rows_of(x),
                                      .update = update.defined() ? arguments.rows(update) : cuda::Rows{},
                                      .out = factor.defined() ? rows_of(out.values) : cuda::Rows{},
                                      .out_scale = scales_of(out),
                                      .update_eps = static_cast<float>(update_eps),
                                      .eps = static_cast<float>(eps),
                                      .gate = arguments.vector(gate),
                                      .factor = arguments.vector(factor)};
  check_launch(cuda::rms_norm_modulate(call, current_stream(x.device())), "RMS norm");
  return out;
}

bool has_quantize_kernel(const at::Tensor& x) {
  return is_half_on_cuda(x) && x.size(-1) % kVector == 0 && x.size(-1) <= cuda::kMaxQuantizeChannels && x.numel() > 0;
}

Activation quantize_on_cuda(const at::Tensor& x, const RowFormat& format, bool gelu, const at::Tensor& column_scale) {
  const c10::DeviceGuard guard(x.device());
  const at::Tensor rows = on_16_bytes(x) ? x.contiguous() : x.clone(at::MemoryFormat::Contiguous);
  const Activation out = empty_in(format, x, x.sizes());
  const cuda::QuantizeRows call = {
      .rows = out.scale.size(0),
      .channels = static_cast<int>(x.size(-1)),
      .from = scalar_of(x),
      .to = bits_of(format),
      .gelu = gelu,
      .column_scale = column_scale.defined() ? column_scale.const_data_ptr<float>() : nullptr,
      .x = rows.const_data_ptr(),
      .out = out.values.mutable_data_ptr(),
      .scale = scales_of(out)};
  check_launch(cuda::quantize_rows(call, current_stream(x.device())), "quantising");
  return out;
}

bool has_swiglu_kernel(const at::Tensor& x) {
  return is_half_on_cuda(x) && x.is_contiguous() && on_16_bytes(x) && x.numel() > 0 &&
         x.size(-1) % (2 * kVector) == 0 && x.size(-1) <= 2 * cuda::kMaxQuantizeChannels;
}

Activation swiglu_on_cuda(const at::Tensor& x, bool fp8) {
  const c10::DeviceGuard guard(x.device());
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() /= 2;
  const Activation out = empty_in({.kind = fp8 ? RowFormat::e4m3 : RowFormat::run_dtype}, x, sizes);
  const cuda::SwiGlu call = {.rows = x.numel() / x.size(-1),
                             .channels = static_cast<int>(sizes.back()),
                             .element = element_of(x),
                             .x = x.const_data_ptr(),
                             .out = out.values.mutable_data_ptr(),
                             .scale = scales_of(out)};
  check_launch(cuda::swiglu(call, current_stream(x.device())), "gated activation");
  return out;
}

void add_gated_on_cuda(const at::Tensor& x, const at::Tensor& update, int64_t video_tokens,
                       const JointModulation& modulation) {
  const c10::DeviceGuard guard(x.device());
  Arguments arguments(x);
  const cuda::AddGated call = {.batch = static_cast<int>(x.size(0)),
                               .tokens = static_cast<int>(x.size(1)),
                               .video_tokens = static_cast<int>(video_tokens),
                               .channels = static_cast<int>(x.size(2)),
                               .element = element_of(x),
                               .residual = rows_of(x),
                               .update = arguments.rows(update),
                               .gate = arguments.vectors(&modulation, &Modulation::gate),
                               .entry = arguments.entry(&modulation)};
  check_launch(cuda::add_gated(call, current_stream(x.device())), "gated addition");
}

bool has_projection_kernel(const at::Tensor& x, at::ArrayRef<const Linear*> layers) {
  if (!is_half_on_cuda(x) || x.numel() == 0 || x.size(0) > cuda::kMaxFewRows || x.size(1) % kVector != 0 ||
      layers.size() > static_cast<size_t>(cuda::kMaxProjections) || !x.is_contiguous() || !on_16_bytes(x))
    return false;
  for (const Linear* layer : layers) {
    const bool fits = layer->rows.empty() && layer->weight.scalar_type() == x.scalar_type() &&
                      layer->weight.is_contiguous() && on_16_bytes(layer->weight) &&
                      (!layer->bias.defined() || layer->bias.scalar_type() == x.scalar_type());
    if (!fits) return false;
  }
  return true;
}

std::vector<at::Tensor> project_on_cuda(const at::Tensor& x, at::ArrayRef<const Linear*> layers) {
  const c10::DeviceGuard guard(x.device());
  cuda::FewRows call = {.rows = static_cast<int>(x.size(0)),
                        .inputs = static_cast<int>(x.size(1)),
                        .element = element_of(x),
                        .x = x.const_data_ptr(),
                        .count = static_cast<int>(layers.size())};
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < layers.size(); ++i) {
    const Linear& layer = *layers[i];
    results.push_back(at::empty({x.size(0), layer.weight.size(0)}, x.options().dtype(at::kFloat)));
    call.projections[i] = {.weight = layer.weight.const_data_ptr(),
                           .bias = layer.bias.defined() ? layer.bias.const_data_ptr() : nullptr,
                           .out = results.back().mutable_data_ptr<float>(),
                           .outputs = static_cast<int>(layer.weight.size(0))};
  }
  check_launch(cuda::project_few_rows(call, current_stream(x.device())), "projection");
  return results;
}

}  // namespace sparsereel::models
