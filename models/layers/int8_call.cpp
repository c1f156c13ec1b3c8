// Calls the kernels that quantize rows to int8 and multiply them, part by part of a layer.
#include "models/layers/int8_call.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <optional>

#include "attention/cuda_binding.h"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda_call.h"
#include "models/layers/rotation.h"

namespace sparsereel::models {
namespace {

using attention::current_stream;
using attention::element_of;

constexpr int64_t kMultiple = 16;

/// Returns true if the kernel that quantizes rows can also rotate groups of `rotation` columns.
bool rotates(int64_t rotation) {
  return rotation == 0 || rotation == 16 || rotation == 64 || rotation == cuda::kMaxRotation;
}

/// Quantizes x [rows, in] for a part of a layer. If the kernel cannot do the part's rotation, rotates in a separate
/// pass in fp32 first.
Activation quantize_for(const StoredRows& part, const at::Tensor& x) {
  if (rotates(part.rotation))
    return quantize_on_cuda(x, {.kind = RowFormat::int8, .rotation = part.rotation}, /*gelu=*/false, part.column_scale);
  at::Tensor numbers = x.to(at::kFloat);
  if (part.column_scale.defined()) numbers.mul_(part.column_scale);
  rotate_(numbers, part.rotation);
  Activation rows = quantize_on_cuda(numbers, {.kind = RowFormat::int8});
  rows.format.rotation = part.rotation;
  return rows;
}

/// Writes the product of rows and a part's weight to the part's columns of y, which begin at column `first`.
void multiply(const Activation& rows, const Linear& layer, const StoredRows& part, int64_t first, const at::Tensor& y) {
  const at::Tensor out = y.narrow(1, first, part.rows),
                   bias =
                       layer.bias.defined() ? layer.bias.narrow(0, first, part.rows).to(y.scalar_type()) : at::Tensor();
  const cuda::MultiplyRows call = {
      .rows = y.size(0),
      .outputs = static_cast<int>(part.rows),
      .depth = static_cast<int>(part.columns),
      .element = element_of(y),
      .x = rows.values.const_data_ptr<int8_t>(),
      .x_scale = rows.scale.const_data_ptr<float>(),
      .weight = reinterpret_cast<const int8_t*>(layer.weight.const_data_ptr()) + part.offset,
      .weight_scale = layer.scale.const_data_ptr<float>() + first,
      .bias = bias.defined() ? bias.const_data_ptr() : nullptr,
      .out = out.mutable_data_ptr(),
      .out_stride = y.stride(0)};
  attention::check_launch(cuda::multiply_rows(call, current_stream(y.device())), "int8 product");
}

void add_loras(const at::Tensor& x, const StoredRows& part, int64_t first, const at::Tensor& y) {
  at::Tensor out = y.narrow(1, first, part.rows);
  for (const LowRank& delta : part.deltas)
    out.addmm_(at::mm(x, delta.down.to(x.scalar_type()).t()), delta.up.to(x.scalar_type()).t(), 1, delta.scale);
}

}  // namespace

bool has_int8_product(const at::Tensor& x, const Linear& layer) {
  const int64_t in = x.size(-1);
  return attention::is_half_on_cuda(x) && x.numel() > 0 && in % kMultiple == 0 && in <= cuda::kMaxQuantizeChannels &&
         attention::on_16_bytes(layer.weight) &&
         std::ranges::all_of(layer.rows, [](const StoredRows& part) { return part.rows % kMultiple == 0; });
}

at::Tensor int8_linear_on_cuda(const Activation& x, const Linear& layer) {
  const c10::DeviceGuard guard(x.values.device());
  const at::Tensor input = x.values.reshape({-1, x.values.size(-1)});
  const at::Tensor y = at::empty({input.size(0), layer.scale.size(0)}, input.options().dtype(x.dtype));
  std::optional<Activation> rows;
  if (x.is_int8()) rows = x;
  int64_t first = 0;
  for (const StoredRows& part : layer.rows) {
    const bool is_scaled = part.column_scale.defined();
    if (!rows || is_scaled || rows->format.rotation != part.rotation) rows = quantize_for(part, input);
    multiply(*rows, layer, part, first, y);
    // The next part does not have these column scales, so it needs rows that are quantized without them.
    if (is_scaled) rows.reset();
    if (!part.deltas.empty()) add_loras(input, part, first, y);
    first += part.rows;
  }
  return y;
}

}  // namespace sparsereel::models
