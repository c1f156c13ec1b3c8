// Unpacks weights block by block in fp32 on a CPU, and with the kernels of layers/cuda/unpack.cu on a GPU.
#include "models/layers/unpack.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "models/layers/cuda/packed_blocks.h"
#include "models/layers/rotation.h"

#ifdef SPARSEREEL_CUDA
#include "models/layers/unpack_call.h"
#endif

namespace sparsereel::models {
namespace {

struct Format {
  int64_t elements = 0, bytes = 0;  // size of a block; 0 if the type is not packed
  void (*eight)(const uint8_t* block, int first, float* out) = nullptr;
  float (*scale_of)(const uint8_t* block) = nullptr;  // null if a block has no scale
};

template <Dtype kDtype>
Format format() {
  using Block = PackedBlock<kDtype>;
  if constexpr (kHasBlockScale<kDtype>) return {Block::elements, Block::bytes, Block::at, Block::scale_of};
  return {Block::elements, Block::bytes, Block::at};
}

Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return format<Dtype::f32>();
    case Dtype::f16:
      return format<Dtype::f16>();
    case Dtype::bf16:
      return format<Dtype::bf16>();
    case Dtype::i8:
      return format<Dtype::i8>();
    case Dtype::f8_e4m3:
      return format<Dtype::f8_e4m3>();
    case Dtype::f8_e5m2:
      return format<Dtype::f8_e5m2>();
    case Dtype::q4_0:
      return format<Dtype::q4_0>();
    case Dtype::q4_1:
      return format<Dtype::q4_1>();
    case Dtype::q5_0:
      return format<Dtype::q5_0>();
    case Dtype::q5_1:
      return format<Dtype::q5_1>();
    case Dtype::q8_0:
      return format<Dtype::q8_0>();
    case Dtype::q2_k:
      return format<Dtype::q2_k>();
    case Dtype::q3_k:
      return format<Dtype::q3_k>();
    case Dtype::q4_k:
      return format<Dtype::q4_k>();
    case Dtype::q5_k:
      return format<Dtype::q5_k>();
    case Dtype::q6_k:
      return format<Dtype::q6_k>();
    case Dtype::iq4_nl:
      return format<Dtype::iq4_nl>();
    case Dtype::iq4_xs:
      return format<Dtype::iq4_xs>();
    case Dtype::mxfp8:
      return format<Dtype::mxfp8>();
    case Dtype::nvfp4:
      return format<Dtype::nvfp4>();
    case Dtype::int4:
      return format<Dtype::int4>();
    case Dtype::awq4:
      return format<Dtype::awq4>();
    default:
      return {};
  }
}

/// Unpacks one row and multiplies it by its scale.
void unpack_row(const uint8_t* bytes, const Format& format, int64_t columns, float scale, float* out) {
  for (int64_t i = 0; i < columns; i += kUnpackedAtOnce) {
    const uint8_t* block = bytes + i / format.elements * format.bytes;
    format.eight(block, static_cast<int>(i % format.elements), out + i);
    const float factor = format.scale_of == nullptr ? scale : scale * format.scale_of(block);
    for (int64_t j = i; j < i + kUnpackedAtOnce; ++j) out[j] *= factor;
  }
}

void unpack_on_cpu(const uint8_t* bytes, const StoredRows& stored, const at::Tensor& scale, at::Tensor& out) {
  const Format format = format_of(stored.dtype);
  const int64_t columns = stored.columns, row_bytes = packed_bytes(stored.dtype, columns);
  const float* scales = scale.defined() ? scale.const_data_ptr<float>() : nullptr;
  std::vector<LowRank> deltas;
  for (const auto& [up, down, strength] : stored.deltas)
    deltas.push_back({up.to(at::kFloat), down.to(at::kFloat), strength});
  constexpr int64_t kAtOnce = int64_t{1} << 16;  // elements that a thread unpacks to fp32 before it rounds them
  const int64_t step = std::max<int64_t>(1, kAtOnce / columns);
  at::parallel_for(0, stored.rows, step, [&](int64_t begin, int64_t end) {
    // Other threads do not inherit this mode, and without it torch refuses to write to an inference tensor.
    const c10::InferenceMode inference;
    for (int64_t first = begin; first < end; first += step) {
      const int64_t count = std::min(step, end - first);
      at::Tensor rows = at::empty({count, columns}, at::kFloat);
      auto* to = rows.mutable_data_ptr<float>();
      for (int64_t row = first; row < first + count; ++row)
        unpack_row(bytes + row * row_bytes, format, columns, scales == nullptr || stored.rotation > 0 ? 1 : scales[row],
                   to + (row - first) * columns);
      if (stored.rotation > 0) rotate_(rows, stored.rotation);
      if (stored.rotation > 0 && scale.defined()) rows.mul_(scale.narrow(0, first, count).unsqueeze(1));
      if (stored.column_scale.defined()) rows.mul_(stored.column_scale);
      for (const LowRank& delta : deltas) rows.addmm_(delta.up.narrow(0, first, count), delta.down, 1, delta.scale);
      out.narrow(0, first, count).copy_(rows);
    }
  });
}

}  // namespace

bool can_unpack(Dtype dtype, int64_t columns) {
  const Format format = format_of(dtype);
  return format.eight != nullptr && columns % format.elements == 0;
}

int64_t packed_bytes(Dtype dtype, int64_t columns) {
  const Format format = format_of(dtype);
  return columns / format.elements * format.bytes;
}

LowRank in_bf16(const LowRank& delta) {
  const auto upper = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const at::Tensor up = upper(delta.up), down = upper(delta.down);
  return {at::cat({up, up, upper(delta.up - up)}, 1), at::cat({down, upper(delta.down - down), down}), delta.scale};
}

at::Tensor unpack(const at::Tensor& bytes, const std::vector<StoredRows>& stored, const at::Tensor& scale,
                  at::ScalarType dtype) {
  int64_t rows = 0;
  for (const StoredRows& part : stored) rows += part.rows;
  at::Tensor result = at::empty({rows, stored.front().columns}, bytes.options().dtype(dtype));
  int64_t row = 0;
  for (const StoredRows& part : stored) {
    at::Tensor out = result.narrow(0, row, part.rows);
    const at::Tensor from = bytes.narrow(0, part.offset, part.rows * packed_bytes(part.dtype, part.columns));
    const at::Tensor scales = scale.defined() ? scale.narrow(0, row, part.rows) : scale;
    row += part.rows;
#ifdef SPARSEREEL_CUDA
    if (bytes.is_cuda()) {
      unpack_on_cuda(from, part, scales, out);
      continue;
    }
#endif
    unpack_on_cpu(from.const_data_ptr<uint8_t>(), part, scales, out);
  }
  return result;
}

}  // namespace sparsereel::models
