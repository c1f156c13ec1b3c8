// Copies rows into another element type.
#include "attention/core/elements.h"

namespace sparsereel::attention {
namespace {

/// Calls body(row, copy_row) for each row of a strided 16-bit tensor and the same row of a contiguous copy.
template <typename Float, typename Body>
void for_each_row(const StridedRows& rows, const RowSizes& sizes, Float* copy, const cpu::ParallelFor& parallel,
                  const Body& body) {
  parallel(sizes.batch * sizes.tokens, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < sizes.heads; ++h) {
        const int64_t at =
            i / sizes.tokens * rows.batch_stride + i % sizes.tokens * rows.token_stride + h * rows.head_stride;
        body(static_cast<uint16_t*>(rows.data) + at, copy + (i * sizes.heads + h) * sizes.head_dim);
      }
    }
  });
}

}  // namespace

void widen(const StridedRows& from, Element element, const RowSizes& sizes, float* to,
           const cpu::ParallelFor& parallel) {
  const auto convert = element == Element::fp16 ? float_of_half : float_of_bf16;
  for_each_row(from, sizes, to, parallel, [&](const uint16_t* row, float* copy) {
    for (int64_t d = 0; d < sizes.head_dim; ++d) copy[d] = convert(row[d]);
  });
}

void narrow(const float* from, const RowSizes& sizes, const StridedRows& to, Element element,
            const cpu::ParallelFor& parallel) {
  const auto convert = element == Element::fp16 ? fp16_of_float : bf16_of_float;
  for_each_row(to, sizes, from, parallel, [&](uint16_t* row, const float* copy) {
    for (int64_t d = 0; d < sizes.head_dim; ++d) row[d] = convert(copy[d]);
  });
}

}  // namespace sparsereel::attention
