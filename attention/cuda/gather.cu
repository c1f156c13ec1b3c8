// Gathers rows by index. A transformer uses this to bring tokens into the token order, and back at its end.
#include "attention/cuda/launch.h"
#include "attention/cuda/launched.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;

/// Copies rows, one per warp. `words` is the number of Words in a row.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    gather(const char* in, int64_t in_batch, int64_t in_row, const int64_t* index, char* out, int64_t out_batch,
           int64_t out_row, int64_t all_rows, int rows, int words) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (row >= all_rows) return;
  const int64_t b = row / rows, i = row % rows;
  const Word* from = reinterpret_cast<const Word*>(in + b * in_batch + index[i] * in_row);
  Word* to = reinterpret_cast<Word*>(out + b * out_batch + i * out_row);
#pragma unroll 4
  for (int w = static_cast<int>(threadIdx.x) % 32; w < words; w += 32) to[w] = from[w];
}

}  // namespace

const char* gather_rows(const void* in, int64_t in_batch_stride, int64_t in_row_stride, const int64_t* index, void* out,
                        int64_t out_batch_stride, int64_t out_row_stride, int batch, int rows, int row_bytes,
                        Stream stream) {
  const int64_t all_rows = static_cast<int64_t>(batch) * rows;
  const unsigned grid = static_cast<unsigned>((all_rows * 32 + kThreads - 1) / kThreads);
  const auto run = [&](auto* kernel, int word) {
    start(kernel, grid, kThreads, 0, stream, static_cast<const char*>(in), in_batch_stride, in_row_stride, index,
          static_cast<char*>(out), out_batch_stride, out_row_stride, all_rows, rows, row_bytes / word);
  };
  const int64_t together = reinterpret_cast<int64_t>(in) | reinterpret_cast<int64_t>(out) | in_batch_stride |
                           in_row_stride | out_batch_stride | out_row_stride | row_bytes;
  return launched([&] {
    if (all_rows > 0) together % 16 == 0 ? run(gather<uint4>, 16) : run(gather<uint16_t>, 2);
  });
}

}  // namespace sparsereel::attention::cuda
