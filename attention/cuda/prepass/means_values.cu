// Computes records of the means of V's cells, and the spreads of V's blocks, from the records of V.
#include <type_traits>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/prepass/means.cuh"
#include "attention/cuda/value_records.cuh"

namespace sparsereel::attention::cuda {
namespace {

/// Larger values count as this value in a sum of squares. Each half of a __half2 sums eight squares, and this sum must
/// fit into fp16.
constexpr float kMostSquared = 80;

/// Computes the sum of 16 e4m3 values, and the sum of their squares.
__device__ void sum_e4m3(const uint4& bytes, float& sum, float& square) {
  __half2 sums{}, squares{};
  const auto add = [&](uint32_t two) {
    const __half2 x = halves_of(two), size = __hmin2(__habs2(x), __float2half2_rn(kMostSquared));
    sums = __hadd2(sums, x);
    squares = __hfma2(size, size, squares);
  };
  const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
  for (const uint32_t four : words) {
    add(four & 0xFFFFU);
    add(four >> 16);
  }
  sum = __low2float(sums) + __high2float(sums);
  square = __low2float(squares) + __high2float(squares);
}

/// The spread (ValueSpread) of a block, summed over its channels and cells. Each lane adds one or more channels.
struct SpreadSum {
  float deviation = 0, far = 0;  // sums of squares

  /// Adds a channel. mean: the mean of the block minus V's center (V's mean, estimated from the sample). variance: the
  /// variance within a cell, or its average over cells. Both are in units of `scale`.
  __device__ void add(float mean, float variance, float scale) {
    const float unit = scale * scale;
    deviation = fmaf(fmaxf(variance, 0.0F), unit, deviation);
    far = fmaf(mean * mean, unit, far);
  }

  /// Writes the spread. copies: how many times each channel was added.
  __device__ void write(const Buffers& buffers, int64_t block, int lane, float copies) const {
    const float square = warp_sum(deviation), distance = warp_sum(far);
    if (lane == 0) buffers.v_spread[block] = {sqrtf(square / copies), sqrtf(distance / copies)};
  }
};

/// The means of the 64 cells of a record of means, with a row for each channel.
template <int D>
struct Cells {
  static constexpr int kPitch = kRecord + 8;
  alignas(16) __half mean[D][kPitch];
};

/// Reads this warp's block of an e4m3 record and averages its cells. A lane has the channels 8 i + lane / 4 of one
/// cell.
template <int D>
__device__ void read_e4m3(const Sizes& sizes, const Buffers& buffers, const MeanWarp& at, Cells<D>& cells) {
  const uint8_t* record = buffers.v + at.from(sizes) * sizes.value_record_bytes;
  const float* scales = buffers.v_scale + static_cast<int64_t>(at.bk) * D;
  const int cell = at.lane % 4 ^ (at.lane / 8 & 3);  // undoes the swizzle of value_offset()
  SpreadSum spread;
  constexpr int kTogether = 8;
  uint4 loaded[kTogether];
#pragma unroll
  for (int i = 0; i < D / 8; ++i) {
    if (i % kTogether == 0) {
#pragma unroll
      for (int next = 0; next < kTogether; ++next)
        loaded[next] =
            __ldg(reinterpret_cast<const uint4*>(record + (8 * (i + next) + at.lane / 4) * kRecord) + at.lane % 4);
    }
    const int channel = 8 * i + at.lane / 4;
    float sum, square;
    sum_e4m3(loaded[i % kTogether], sum, square);
    const float block_mean = __half2float(__ushort_as_half(__ldg(buffers.v_mean + at.from(sizes) * D + channel)));
    cells.mean[channel][kBlockCells * at.warp + cell] = __float2half_rn(fmaf(sum, 1.0F / kCell, block_mean));
    if (buffers.v_spread == nullptr) continue;
    const float cell_mean = sum * (1.0F / kCell), cell_square = square * (1.0F / kCell);
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
    const float residual = sum * (1.0F / kRecord);
    spread.add(block_mean + residual, cell_square - cell_mean * cell_mean, __ldg(scales + channel));
    if (buffers.v_block_mean != nullptr && at.lane % 4 == 0)
      buffers.v_block_mean[at.block(sizes) * D + channel] = __half_as_ushort(__float2half_rn(block_mean + residual));
  }
  if (buffers.v_spread != nullptr) spread.write(buffers, at.block(sizes), at.lane, kBlockCells);
}

/// Writes the e4m3 record of 64 means, with a row for each channel. The mean of each row is subtracted, as in
/// quantize_values.cu, and the row is multiplied by kCell, the number of keys for which a mean counts.
template <int D>
__device__ void write_e4m3(const Sizes& sizes, const Buffers& buffers, const MeanWarp& at, const Cells<D>& cells) {
  uint8_t* out = buffers.v + at.to(sizes) * sizes.value_record_bytes;
  const int real = at.blocks * kBlockCells;
  const float share = 1.0F / static_cast<float>(max(real, 1));
  for (int item = static_cast<int>(threadIdx.x); item < D * 4; item += kMeanThreads) {
    const int channel = item / 4, chunk = item % 4;
    float x[16], mean = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] = chunk * 16 + i < real ? __half2float(cells.mean[channel][chunk * 16 + i]) : 0.0F;
      mean += x[i];
    }
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) mean += __shfl_xor_sync(~0U, mean, lanes);
    mean *= share;
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = chunk * 16 + i < real ? (x[i] - mean) * kCell : 0.0F;
    mean *= kCell;
    const auto four = [&](int i) { return e4m3x4(x[i], x[i + 1], x[i + 2], x[i + 3]); };
    const uint4 bytes = make_uint4(four(0), four(4), four(8), four(12));
    *reinterpret_cast<uint4*>(out + value_offset(channel, chunk * 16)) = bytes;
    float sum, square;
    sum_e4m3(bytes, sum, square);
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
    const float kept = fp16_range(mean - sum * share);  // includes what rounding added to the row
    if (chunk == 0) buffers.v_mean[at.to(sizes) * D + channel] = __half_as_ushort(__float2half_rn(kept));
  }
  for (int item = static_cast<int>(threadIdx.x); item < kOnesRows * ones_sets(D) * 4; item += kMeanThreads)
    *reinterpret_cast<uint4*>(out + value_offset(D + item / 4, item % 4 * 16)) = ones<D>(item / 4, item % 4, kRecord);
}

template <int D>
__global__ void __launch_bounds__(kMeanThreads)
    means_of_e4m3_values(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                         const __grid_constant__ Buffers buffers) {
  __shared__ Cells<D> cells;
  const MeanWarp at(p, sizes);
  if (at.real()) read_e4m3<D>(sizes, buffers, at, cells);
  __syncthreads();
  write_e4m3<D>(sizes, buffers, at, cells);
}

/// Number of channels whose means are in shared memory at the same time in the kernel for int8.
template <int D>
constexpr int kInt8Channels = D < 128 ? D : 128;

/// The means of the 64 cells of a record of means in fp32, with a row for each channel.
template <int D>
struct Int8Cells {
  static constexpr int kPitch = kRecord + 4;
  alignas(16) float mean[kInt8Channels<D>][kPitch];
};

__device__ float scale_of(const uint8_t* record, int D, int channel) {
  return __ldg(reinterpret_cast<const float*>(record + D * kRecord) + channel);
}

/// Reads kInt8Channels channels of this warp's block of an int8 record, from channel `first` on, and averages its
/// cells. A lane has the channels 8 i + lane / 4 of one cell.
template <int D>
__device__ void read_int8(const Sizes& sizes, const Buffers& buffers, const MeanWarp& at, int first,
                          Int8Cells<D>& cells, SpreadSum& spread) {
  const uint8_t* record = buffers.v + at.from(sizes) * sizes.value_record_bytes;
  const int64_t head = static_cast<int64_t>(at.bk) * D;
  const int cell = at.lane % 4 ^ (at.lane / 8 & 3);  // undoes the swizzle of value_offset()
#pragma unroll 8
  for (int i = 0; i < kInt8Channels<D> / 8; ++i) {
    const int row = 8 * i + at.lane / 4, channel = first + row;
    const int4 keys = __ldg(reinterpret_cast<const int4*>(record + channel * kRecord) + at.lane % 4);
    const float scale = scale_of(record, D, channel);
    constexpr int kOnes = 0x01010101;
    int sum = __dp4a(keys.x, kOnes, __dp4a(keys.y, kOnes, __dp4a(keys.z, kOnes, __dp4a(keys.w, kOnes, 0))));
    const int square =
        __dp4a(keys.x, keys.x, __dp4a(keys.y, keys.y, __dp4a(keys.z, keys.z, __dp4a(keys.w, keys.w, 0))));
    cells.mean[row][kBlockCells * at.warp + cell] = __fmul_rn(static_cast<float>(sum), scale) * (1.0F / kCell);
    if (buffers.v_spread == nullptr) continue;
    const float cell_mean = static_cast<float>(sum) * (1.0F / kCell);
    const float cell_square = static_cast<float>(square) * (1.0F / kCell);
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) sum += __shfl_xor_sync(~0U, sum, lanes);
    const float mean = static_cast<float>(sum) * (1.0F / kRecord);
    spread.add(mean, cell_square - cell_mean * cell_mean, scale);
    if (buffers.v_block_mean != nullptr && at.lane % 4 == 0)
      buffers.v_block_mean[at.block(sizes) * D + channel] =
          __half_as_ushort(__float2half_rn(mean * scale / buffers.v_scale[head + channel]));
  }
}

/// Writes kInt8Channels channels of the int8 record of 64 means, from channel `first` on. Rounds as make_int8() does.
template <int D>
__device__ void write_int8(const Sizes& sizes, const Buffers& buffers, const MeanWarp& at, int first,
                           const Int8Cells<D>& cells) {
  uint8_t* out = buffers.v + at.to(sizes) * sizes.value_record_bytes;
  const int real = at.blocks * kBlockCells;
  for (int item = static_cast<int>(threadIdx.x); item < kInt8Channels<D> * 4; item += kMeanThreads) {
    const int row = item / 4, chunk = item % 4;
    float x[16];
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      x[i] = chunk * 16 + i < real ? cells.mean[row][chunk * 16 + i] : 0.0F;
      most = max(most, __float_as_uint(fabsf(x[i])));
    }
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) most = max(most, __shfl_xor_sync(~0U, most, lanes));
    const float inverse = int8_inverse_scale(__uint_as_float(most));
    const auto byte = [&](int i) { return int8_byte(x[i], inverse); };
    const auto four = [&](int i) { return four_bytes(byte(i), byte(i + 1), byte(i + 2), byte(i + 3)); };
    *reinterpret_cast<uint4*>(out + value_offset(first + row, chunk * 16)) =
        make_uint4(four(0), four(4), four(8), four(12));
    if (chunk == 0) reinterpret_cast<float*>(out + D * kRecord)[first + row] = int8_scale(__uint_as_float(most));
  }
}

template <int D>
__global__ void __launch_bounds__(kMeanThreads)
    means_of_int8_values(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                         const __grid_constant__ Buffers buffers) {
  __shared__ Int8Cells<D> cells;
  const MeanWarp at(p, sizes);
  SpreadSum spread;
#pragma unroll 1
  for (int first = 0; first < D; first += kInt8Channels<D>) {
    if (at.real()) read_int8<D>(sizes, buffers, at, first, cells, spread);
    __syncthreads();
    write_int8<D>(sizes, buffers, at, first, cells);
    if (first + kInt8Channels<D> < D) __syncthreads();
  }
  if (at.real() && buffers.v_spread != nullptr) spread.write(buffers, at.block(sizes), at.lane, kBlockCells);
}

/// Makes the records of means from fp16 records of V. A lane has pairs of channels of this warp's block.
template <int D>
__global__ void __launch_bounds__(kMeanThreads)
    means_of_half_values(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                         const __grid_constant__ Buffers buffers) {
  const MeanWarp at(p, sizes);
  const uint8_t* record = buffers.v + at.from(sizes) * sizes.value_record_bytes;
  uint8_t* out = buffers.v + at.to(sizes) * sizes.value_record_bytes;
  const float* scales = buffers.v_scale + static_cast<int64_t>(at.bk) * D;
  SpreadSum spread;
#pragma unroll 1
  for (int channel = 2 * at.lane; channel < D; channel += 64) {
    float2 total = {}, square = {};
#pragma unroll
    for (int cell = 0; cell < kBlockCells; ++cell) {
      float2 sum = {};
#pragma unroll
      for (int i = 0; at.real() && i < kCell; ++i) {
        const int offset = half_value_offset<D>(cell * kCell + i, 2 * channel);
        const float2 x = __half22float2(*reinterpret_cast<const __half2*>(record + offset));
        sum = {sum.x + x.x, sum.y + x.y};
        square = {fmaf(x.x, x.x, square.x), fmaf(x.y, x.y, square.y)};
      }
      *reinterpret_cast<__half2*>(out + half_value_offset<D>(mean_key(at.warp, cell), 2 * channel)) =
          __floats2half2_rn(sum.x * (1.0F / kCell), sum.y * (1.0F / kCell));
      square = {fmaf(sum.x, sum.x * (-1.0F / kCell), square.x), fmaf(sum.y, sum.y * (-1.0F / kCell), square.y)};
      total = {total.x + sum.x, total.y + sum.y};
    }
    const float share = 1.0F / kRecord;
    if (at.real() && buffers.v_block_mean != nullptr)
      *reinterpret_cast<__half2*>(buffers.v_block_mean + at.block(sizes) * D + channel) =
          __floats2half2_rn(total.x * share, total.y * share);
    spread.add(total.x * share, square.x * share, scales[channel]);
    spread.add(total.y * share, square.y * share, scales[channel + 1]);
  }
  if (at.real() && buffers.v_spread != nullptr) spread.write(buffers, at.block(sizes), at.lane, 1);
}

template <int D>
void launch(const LaunchContext& context) {
  const auto run = [&](auto* means) { context.start(means, mean_grid(context.sizes), kMeanThreads); };
  const ValueFormat format = context.kernel.values;
  if (format == ValueFormat::half) return run(means_of_half_values<D>);
  if constexpr (D <= 128) {
    if (format == ValueFormat::e4m3_less_mean) return run(means_of_e4m3_values<D>);
  }
  run(means_of_int8_values<D>);
}

}  // namespace

void launch_means_of_values(const LaunchContext& context) {
  if (context.sizes.mean_records == 0) return;
  if (context.sizes.D == 64) launch<64>(context);
  if (context.sizes.D == 128) launch<128>(context);
  if (context.sizes.D == 256) launch<256>(context);
}

}  // namespace sparsereel::attention::cuda
