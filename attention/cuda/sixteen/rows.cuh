// Copies rows from global memory to a stage of the 16-bit kernel (kernel.cuh), and writes the kernel's output rows.
#pragma once

#include "attention/cuda/mma.cuh"
#include "attention/cuda/output_mma.cuh"
#include "attention/cuda/sixteen/shape.cuh"

namespace sparsereel::attention::cuda {

/// Starts a copy of 16 bytes if `copies` is true; otherwise writes zeros.
__device__ inline void copy_or_zero(uint32_t to, const void* from, bool copies) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copies ? 16 : 0) : "memory");
}

/// Copies kKeys rows of K or V to a stage. All threads of the CTA take part.
template <typename T, int D, bool kSkips>
class SixteenCopy {
  using Shape = SixteenShape<D, kSkips>;
  static constexpr int kKeys = Shape::kKeys;
  static constexpr int kChunks = D / kLaneElements;              // number of chunks of 16 bytes in a row
  static constexpr int kRowsAtOnce = Shape::kThreads / kChunks;  // rows that all threads together copy at once
  static constexpr int kRounds = (kKeys + kRowsAtOnce - 1) / kRowsAtOnce;

 public:
  /// own_row() and own_byte() return the row, and the byte in that row, at which this thread's first copy starts.
  __device__ static int own_row() { return static_cast<int>(threadIdx.x) / kChunks; }
  __device__ static int own_byte() { return static_cast<int>(threadIdx.x) % kChunks * 16; }
  __device__ static int64_t row_bytes(const View& view) { return view.token_stride * static_cast<int64_t>(sizeof(T)); }
  /// Returns the address of this thread's first copy in the tokens of head h of batch entry b.
  __device__ static const uint8_t* own_part(const View& view, int b, int h) {
    return reinterpret_cast<const uint8_t*>(static_cast<const T*>(view.data) + b * view.batch_stride +
                                            h * view.head_stride) +
           own_row() * row_bytes(view) + own_byte();
  }
  /// Copies this thread's part of kKeys rows. Only the first `real` rows exist; zeros are written for the others.
  __device__ static void copy(const KernelParams& p, uint8_t* to, const uint8_t* from, int64_t row_bytes, int real) {
    const uint32_t address = shared_address(to);
    if (real >= kKeys && p.head_dim == D) {
      copy_rows(address, from, row_bytes, [](uint32_t at, const uint8_t* piece, int) { copy_async(at, piece); });
    } else {
      const int rows = own_byte() < 2 * p.head_dim ? real : 0;
      copy_rows(address, from, row_bytes, [&](uint32_t at, const uint8_t* piece, int row) {
        copy_or_zero(at, row < rows ? piece : p.k.data, row < rows);
      });
    }
  }

 private:
  template <typename Copy>
  __device__ static void copy_rows(uint32_t address, const uint8_t* from, int64_t row_bytes, const Copy& copy_piece) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int row = own_row() + i * kRowsAtOnce;
      if ((i + 1) * kRowsAtOnce > kKeys && row >= kKeys) break;
      copy_piece(address + half_value_offset<D>(row, own_byte()), from, row);
      from += kRowsAtOnce * row_bytes;
    }
  }
};

/// Writes out[query] = accumulators / sum; zeros for a query that sees no key.
template <typename T, int kChannelTiles>
__device__ inline void store_sixteen(const KernelParams& p, int bh, int lane, int query, int half,
                                     const float (&accumulators)[kChannelTiles][4], float sum) {
  T* row = static_cast<T*>(p.out.data) + bh / p.heads * p.out.batch_stride + bh % p.heads * p.out.head_stride +
           query * p.out.token_stride;
  const float inverse = sum == 0 ? 0.0F : 1.0F / sum;
#pragma unroll
  for (int first = 0; first < kChannelTiles; first += 4) {
    float even[4], odd[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      even[i] = accumulators[first + i][2 * half] * inverse;
      odd[i] = accumulators[first + i][2 * half + 1] * inverse;
    }
    transpose_quad(even);
    transpose_quad(odd);
    const int column = (first + lane % 4) * kLaneElements;
    if (query >= p.queries || column >= p.head_dim) continue;
    *reinterpret_cast<uint4*>(row + column) = make_uint4(pack_pair<T>(even[0], odd[0]), pack_pair<T>(even[1], odd[1]),
                                                         pack_pair<T>(even[2], odd[2]), pack_pair<T>(even[3], odd[3]));
  }
}

}  // namespace sparsereel::attention::cuda
