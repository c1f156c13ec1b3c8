// Calls the kernel that unpacks packed rows. Rows that LoRAs change, or that were rotated, are unpacked some at a time,
// because they need an fp32 copy.
#include "models/layers/unpack_call.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "attention/cuda_binding.h"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda_scalar.h"
#include "models/layers/rotation.h"

namespace sparsereel::models {
namespace {

// Elements that are unpacked at a time. With fewer, launching takes the host longer than the work takes the GPU.
constexpr int64_t kAddedAtOnce = int64_t{16} << 20;
constexpr int64_t kAlignedRows = 16;  // In every format, this number of rows takes a multiple of 16 bytes.

/// Returns fp32 [count, columns]: the sum of all changes by LoRAs to the rows from `first` on.
at::Tensor sum_of_deltas(const StoredRows& stored, int64_t first, int64_t count) {
  at::Tensor sum;
  for (const LowRank& delta : stored.deltas) {
    const at::Tensor up = delta.up.narrow(0, first, count);
    // addmm() needs a matrix to which it adds. Its factor beta is 0, so this matrix is never read.
    const at::Tensor unread = at::empty({1, 1}, up.options()).expand({count, stored.columns});
    at::Tensor product = up.scalar_type() == at::kFloat ? at::addmm(unread, up, delta.down, 0, delta.scale)
                                                        : at::addmm(unread, up, delta.down, at::kFloat, 0, delta.scale);
    sum = sum.defined() ? sum.add_(product) : std::move(product);
  }
  return sum;
}

void unpack_some(const at::Tensor& bytes, const StoredRows& stored, const at::Tensor& scale, const at::Tensor& delta,
                 const at::Tensor& out) {
  const cuda::UnpackRows call = {.from = stored.dtype,
                                 .to = scalar_of(out),
                                 .rows = stored.rows,
                                 .columns = stored.columns,
                                 .packed = bytes.const_data_ptr(),
                                 .scale = scale.defined() ? scale.const_data_ptr<float>() : nullptr,
                                 .delta = delta.defined() ? delta.const_data_ptr<float>() : nullptr,
                                 .out = out.mutable_data_ptr()};
  attention::check_launch(cuda::unpack_rows(call, attention::current_stream(bytes.device())), "unpacking weights");
}

/// Returns fp32 [count, columns]: rows whose columns are rotated back and scaled, with changes by LoRAs added.
at::Tensor turned_rows(const at::Tensor& bytes, const StoredRows& stored, const at::Tensor& scale,
                       const at::Tensor& delta, int64_t count) {
  at::Tensor rows = at::empty({count, stored.columns}, bytes.options().dtype(at::kFloat));
  const at::Tensor scales = stored.rotation > 0 ? at::Tensor() : scale;
  unpack_some(bytes, {stored.dtype, count, stored.columns, 0}, scales, {}, rows);
  if (stored.rotation > 0) rotate_(rows, stored.rotation);
  if (stored.rotation > 0 && scale.defined()) rows.mul_(scale.unsqueeze(1));
  if (stored.column_scale.defined()) rows.mul_(stored.column_scale);
  return delta.defined() ? rows.add_(delta) : rows;
}

}  // namespace

void unpack_on_cuda(const at::Tensor& bytes, const StoredRows& stored, const at::Tensor& scale, at::Tensor& out) {
  const c10::DeviceGuard guard(bytes.device());
  const bool turned = stored.rotation > 0 || stored.column_scale.defined();
  if (stored.deltas.empty() && !turned) return unpack_some(bytes, stored, scale, {}, out);
  const int64_t row_bytes = bytes.numel() / stored.rows;
  const int64_t step = std::max<int64_t>(1, kAddedAtOnce / stored.columns / kAlignedRows) * kAlignedRows;
  for (int64_t row = 0; row < stored.rows; row += step) {
    const int64_t count = std::min(step, stored.rows - row);
    const at::Tensor from = bytes.narrow(0, row * row_bytes, count * row_bytes), to = out.narrow(0, row, count);
    const at::Tensor scales = scale.defined() ? scale.narrow(0, row, count) : scale;
    const at::Tensor delta = stored.deltas.empty() ? at::Tensor() : sum_of_deltas(stored, row, count);
    const StoredRows some = {stored.dtype, count, stored.columns, 0};
    if (turned)
      to.copy_(turned_rows(from, stored, scales, delta, count));
    else
      unpack_some(from, some, scales, delta, to);
  }
}

}  // namespace sparsereel::models
