// Splits quantizing and products among a CPU's threads, and applies scales, biases and LoRAs in fp32. Our kernels do
// the same on a GPU.
#include "models/layers/int8.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <vector>

#include "models/layers/int8_kernels.h"
#include "models/layers/rotation.h"
#ifdef SPARSEREEL_CUDA
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda_call.h"
#include "models/layers/int8_call.h"
#endif

namespace sparsereel::models {
namespace {

constexpr int64_t kMostRotation = 256, kLeastRotation = 16;
// A weight is rotated unless the rotation multiplies its squared rounding error by more than this.
constexpr double kMostGrowth = 1.1;
constexpr int64_t kRowsAtOnce = 32, kColumnsAtOnce = 256;  // the part of a product that a thread computes at once

int64_t rotation_for(int64_t columns) {
  for (int64_t group = kMostRotation; group >= kLeastRotation; group /= 4)
    if (columns % group == 0) return group;
  return 0;
}

/// Returns fp32 [rows, all outputs]: products of integers times both scales.
at::Tensor scaled_product(const Int8Rows& x, const at::Tensor& weight, const at::Tensor& scale) {
  const int64_t rows = x.values.size(0), columns = weight.size(0), depth = weight.size(1);
  at::Tensor result = at::empty({rows, columns}, at::kFloat);
  const int64_t across = (columns + kColumnsAtOnce - 1) / kColumnsAtOnce;
  const int64_t tiles = (rows + kRowsAtOnce - 1) / kRowsAtOnce * across;
  const float *x_scale = x.scale.const_data_ptr<float>(), *w_scale = scale.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, tiles, 1, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> sums(static_cast<size_t>(kRowsAtOnce * kColumnsAtOnce));
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t m = tile / across * kRowsAtOnce, n = tile % across * kColumnsAtOnce;
      const Int8Product p = {.x = x.values.const_data_ptr<int8_t>() + m * depth,
                             .weight = weight.const_data_ptr<int8_t>() + n * depth,
                             .out = sums.data(),
                             .rows = std::min(kRowsAtOnce, rows - m),
                             .columns = std::min(kColumnsAtOnce, columns - n),
                             .depth = depth,
                             .out_stride = kColumnsAtOnce};
      multiply_int8(p);
      for (int64_t i = 0; i < p.rows; ++i)
        for (int64_t j = 0; j < p.columns; ++j)
          to[(m + i) * columns + n + j] =
              static_cast<float>(sums[static_cast<size_t>(i * kColumnsAtOnce + j)]) * x_scale[m + i] * w_scale[n + j];
    }
  });
  return result;
}

/// Returns the part's weight, int8 [rows, columns].
at::Tensor weight_of(const Linear& layer, const StoredRows& part) {
  return layer.weight.narrow(0, part.offset, part.rows * part.columns).view(at::kChar).view({part.rows, part.columns});
}

/// Returns fp32 [rows, out].
at::Tensor int8_linear_on_cpu(const at::Tensor& x, const Linear& layer) {
  const at::Tensor input = x.reshape({-1, x.size(-1)});
  std::vector<at::Tensor> parts;
  Int8Rows rows;
  int64_t first = 0;
  for (const StoredRows& part : layer.rows) {
    const bool is_scaled = part.column_scale.defined();
    if (!rows.values.defined() || is_scaled || rows.rotation != part.rotation)
      rows = quantize_int8(is_scaled ? input.to(at::kFloat) * part.column_scale : input, part.rotation);
    at::Tensor y = scaled_product(rows, weight_of(layer, part), layer.scale.narrow(0, first, part.rows));
    // The next part does not have these column scales, so it needs rows that are quantized without them.
    if (is_scaled) rows = {};
    for (const LowRank& delta : part.deltas) {
      const at::Tensor down = at::mm(input.to(at::kFloat), delta.down.to(at::kFloat).t());
      y.addmm_(down, delta.up.to(at::kFloat).t(), 1, delta.scale);
    }
    first += part.rows;
    parts.push_back(y);
  }
  at::Tensor y = parts.size() == 1 ? parts.front() : at::cat(parts, 1);
  if (layer.bias.defined()) y.add_(layer.bias);
  return y;
}

}  // namespace

Int8Rows quantize_int8(const at::Tensor& x, int64_t rotation) {
  const int64_t columns = x.size(-1), rows = x.numel() / std::max<int64_t>(columns, 1);
#ifdef SPARSEREEL_CUDA
  if (x.is_cuda() && columns <= cuda::kMaxQuantizeChannels) {
    const Activation quantized =
        quantize_on_cuda(x.reshape({rows, columns}), {.kind = RowFormat::int8, .rotation = rotation});
    return {quantized.values, quantized.scale.view({-1}), rotation};
  }
#endif
  const at::Tensor numbers = x.reshape({rows, columns}).to(at::kCPU, at::kFloat).contiguous();
  Int8Rows result = {at::empty({rows, columns}, at::kChar), at::empty({rows}, at::kFloat), rotation};
  auto* values = result.values.mutable_data_ptr<int8_t>();
  auto* scale = result.scale.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
    const c10::InferenceMode inference;
    for (int64_t row = begin; row < end; ++row) {
      at::Tensor own = numbers.narrow(0, row, 1);
      if (rotation > 0) {
        own = own.clone();
        rotate_(own, rotation);
      }
      scale[row] = quantize_row({own.const_data_ptr<float>(), values + row * columns, columns});
    }
  });
  return result;
}

Int8Rows quantize_int8_weight(const at::Tensor& weight) {
  const int64_t rotation = rotation_for(weight.size(1));
  Int8Rows plain = quantize_int8(weight, 0);
  if (rotation == 0) return plain;
  Int8Rows rotated = quantize_int8(weight, rotation);
  // A rounding error is uniform in +-scale/2, so a row's mean squared error is scale^2 / 12. The factor 1 / 12 is left
  // out, because only the ratio of two errors matters.
  const auto error = [](const Int8Rows& rows) { return rows.scale.to(at::kDouble).square().sum().item<double>(); };
  return error(rotated) <= kMostGrowth * error(plain) ? rotated : plain;
}

bool multiplies_in_int8(const Activation& x, const Linear& layer) {
  if (layer.rows.empty() || !std::ranges::all_of(layer.rows, &StoredRows::multiplies)) return false;
  if (x.is_int8() || x.values.is_cpu()) return true;
#ifdef SPARSEREEL_CUDA
  return has_int8_product(x.values, layer);
#else
  return false;
#endif
}

std::optional<int64_t> shared_rotation(const at::Tensor& x, const Linear& layer) {
  if (x.is_cpu() || !multiplies_in_int8(x, layer)) return std::nullopt;
  const int64_t rotation = layer.rows.front().rotation;
  const auto shares = [&](const StoredRows& part) {
    return part.rotation == rotation && part.deltas.empty() && !part.column_scale.defined();
  };
  if (rotation > kMostRotation || !std::ranges::all_of(layer.rows, shares)) return std::nullopt;
  return rotation;
}

at::Tensor int8_linear(const Activation& x, const Linear& layer) {
  RECORD_FUNCTION("sparsereel::int8_linear", std::vector<c10::IValue>());  // shows this product to profilers
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = layer.scale.size(0);
#ifdef SPARSEREEL_CUDA
  if (x.values.is_cuda()) return int8_linear_on_cuda(x, layer).view(sizes);
#endif
  return int8_linear_on_cpu(x.values, layer).to(x.dtype).view(sizes);
}

}  // namespace sparsereel::models
