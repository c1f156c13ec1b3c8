// Residual addition, layer norm and modulation in one pass. A team of warps keeps a row in registers. Shared memory
// holds the modulation vectors, of either video or text. Kernels with int8 results are instantiated separately
// (norm_int8.cu), because they take more registers.
#pragma once

#include <algorithm>
#include <utility>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/layers/cuda/e4m3.cuh"
#include "models/layers/cuda/int8.cuh"
#include "models/layers/cuda/launch.h"
#include "models/layers/cuda/team.cuh"

namespace sparsereel::models::cuda::norms {

using attention::cuda::load_packed;
using attention::cuda::pack;
using attention::cuda::store_packed;
using attention::cuda::to_float;
using attention::cuda::unpack;

constexpr int kChunk = 32 * kLaneElements;  // channels that a warp loads at once

/// The rows (tokens) of one thread block. All are video or all are text, and all belong to one batch entry.
struct RowRange {
  int batch, first, end;
  bool video;

  /// Assigns rows_per_block rows to each block, first the rows of the video, then the rows of the text.
  __device__ RowRange(const NormModulate& p, int rows_per_block) {
    const int video_blocks = (p.video_tokens + rows_per_block - 1) / rows_per_block;
    const int block = static_cast<int>(blockIdx.x);
    batch = static_cast<int>(blockIdx.y);
    video = block < video_blocks;
    first = video ? block * rows_per_block : p.video_tokens + (block - video_blocks) * rows_per_block;
    end = min(first + rows_per_block, video ? p.video_tokens : p.tokens);
  }

  __device__ const float* of(const PartVectors& vectors, int entry) const {
    const Vectors& v = video ? vectors.video : vectors.text;
    return v.data == nullptr ? nullptr : v.data + entry * v.batch_stride;
  }
};

/// Tells which entry (row) of the modulation vectors each row of the block uses.
struct RowEntries {
  const int64_t* rows;  // [tokens], the entry that each token uses; null if all use the entry `batch`
  int first, end;       // entries `first` to end - 1 may be used

  __device__ RowEntries(const NormModulate& p, int batch)
      : rows(p.entry.data == nullptr ? nullptr : p.entry.data + static_cast<int64_t>(batch) * p.tokens),
        first(rows == nullptr ? batch : 0),
        end(rows == nullptr ? batch + 1 : p.entry.entries) {}

  __device__ bool has(int row, int entry) const { return rows == nullptr || rows[row] == entry; }
  /// Returns true if any row of the range uses the entry. Synchronizes the block if `rows` is not null.
  __device__ bool any(const RowRange& range, int entry) const {
    if (rows == nullptr) return true;
    int found = 0;
    for (int row = range.first + static_cast<int>(threadIdx.x); row < range.end; row += kThreads)
      found |= static_cast<int>(has(row, entry));
    return __syncthreads_or(found) != 0;
  }
};

/// kVectors vectors [channels] in shared memory, in an order that lanes read without bank conflicts:
/// [chunk][vector][half of a lane's 8 elements][32 lanes][4 floats].
template <int kVectors>
struct SharedVectors {
  float* data;

  __device__ float& at(int vector, int channel) const {
    const int chunk = channel / kChunk, lane = channel % kChunk / kLaneElements, i = channel % kLaneElements;
    return data[((chunk * 2 * kVectors + vector * 2 + i / 4) * 32 + lane) * 4 + i % 4];
  }

  __device__ void read(int vector, int chunk, int lane, float (&x)[kLaneElements]) const {
    const float4* from = reinterpret_cast<const float4*>(data) + (chunk * 2 * kVectors + vector * 2) * 32 + lane;
    const float4 low = from[0], high = from[32];
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
  }
};

enum Vector { kScale, kShift, kGate };

/// Combines the norm's weight and bias with the modulation into one scale and one shift of the normalized row, and
/// writes them to shared memory.
template <typename T, int kVectors>
__device__ void fold(const NormModulate& p, const RowRange& range, int entry, const SharedVectors<kVectors>& vectors) {
  const T* weight = static_cast<const T*>(p.weight);
  const T* bias = static_cast<const T*>(p.bias);
  const float *scale = range.of(p.scale, entry), *shift = range.of(p.shift, entry), *gate = range.of(p.gate, entry);
  for (int c = threadIdx.x; c < p.channels; c += kThreads) {
    const float factor = scale == nullptr ? 1.0F : 1.0F + scale[c];
    vectors.at(kScale, c) = weight == nullptr ? factor : factor * to_float(weight[c]);
    vectors.at(kShift, c) =
        (bias == nullptr ? 0.0F : factor * to_float(bias[c])) + (shift == nullptr ? 0.0F : shift[c]);
    if constexpr (kVectors == 3) vectors.at(kGate, c) = gate == nullptr ? 1.0F : gate[c];
  }
}

/// This lane's elements of a row. Each of the team's kTeam warps holds kChunks chunks of the row.
template <typename T, int kTeam, int kChunks, bool kUpdates>
class Row {
 public:
  using Shared = SharedVectors<kUpdates ? 3 : 2>;

  __device__ Row(int channels, const Shared& vectors, Team<kTeam>& team)
      : channels_(channels), vectors_(vectors), team_(team) {}

  __device__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      x_[i] = {};
      if (holds(i)) x_[i] = load_packed(from + column(i));
    }
  }

  /// Computes residual += gate * update and stores it. The norm reads the rounded sum from registers.
  __device__ void add(const T* update, T* residual) {
    // Chunks of the update that are loaded together; more would not fit into registers.
    constexpr int kTogether = kChunks < 6 ? kChunks : 4;
#pragma unroll
    for (int first = 0; first < kChunks; first += kTogether) {
      Packed<T> more[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i < kChunks && holds(first + i)) more[i] = load_packed(update + column(first + i));
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i < kChunks && holds(first + i)) add_chunk(first + i, more[i], residual);
      }
    }
  }

  __device__ void normalize(float eps, bool centers) {
    const float size = static_cast<float>(channels_);
    float mean = 0;
    if (centers) {
      float sum = 0;
      for_each([&](float x) { sum += x; });
      mean = team_.sum(sum) / size;
      forget_unpacked();
    }
    // The variance takes a second pass over the registers: mean(x^2) - mean(x)^2 would lose precision by cancellation.
    float squares = 0;
    for_each([&](float x) { squares += (x - mean) * (x - mean); });
    const float inverse = rsqrtf(team_.sum(squares) / size + eps);
    forget_unpacked();
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (!holds(i)) continue;
      float x[kLaneElements], scale[kLaneElements], shift[kLaneElements];
      unpack(x_[i], x);
      vectors_.read(kScale, place(i), lane(), scale);
      vectors_.read(kShift, place(i), lane(), shift);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) x[j] = (x[j] - mean) * inverse * scale[j] + shift[j];
      x_[i] = pack<T>(x);
    }
  }

  __device__ void write(T* to) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (holds(i)) store_packed(to + column(i), x_[i]);
    }
  }

  __device__ void write_int8(uint8_t* to, float* to_scale, int rotation) {
    float x[kChunks][kLaneElements], most = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      unpack(x_[i], x[i]);
      const bool warp_has_channels = place(i) * kChunk < channels_;
      if (rotation > 0 && warp_has_channels) rotate(x[i], rotation);
      most = fmaxf(most, largest_of(x[i]));
    }
    store_int8_row(
        x, team_.max(most), channels_, [](int chunk) { return column(chunk); }, to, to_scale);
  }

  __device__ void write_e4m3(uint8_t* to, float* to_scale) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) most = fmaxf(most, largest_of(x_[i]));
    const float scale = e4m3_scale(team_.max(most)), inverse = __frcp_rn(scale);
    forget_unpacked();
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (holds(i)) store_e4m3(to + column(i), x_[i], inverse);
    }
    if (lane() == 0 && team_.member() == 0) *to_scale = scale;
  }

 private:
  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  /// Returns the index of this warp's chunk within the row.
  static __device__ int place(int chunk) {
    return chunk * kTeam + Team<kTeam>::member();
  }
  static __device__ int column(int chunk) {
    return place(chunk) * kChunk + lane() * kLaneElements;
  }
  __device__ bool holds(int chunk) const {
    return column(chunk) < channels_;
  }

  __device__ void add_chunk(int chunk, const Packed<T>& update, T* residual) {
    float x[kLaneElements], y[kLaneElements], gate[kLaneElements];
    unpack(x_[chunk], x);
    unpack(update, y);
    vectors_.read(kGate, place(chunk), lane(), gate);
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) x[j] += gate[j] * y[j];
    x_[chunk] = pack<T>(x);
    store_packed(residual + column(chunk), x_[chunk]);
  }

  /// Makes the compiler forget the unpacked row. Otherwise the compiler keeps the row as floats between passes, which
  /// takes twice the registers, and spills them.
  __device__ void forget_unpacked() {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      uint4& bits = reinterpret_cast<uint4&>(x_[i]);
      asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    }
  }

  template <typename Body>
  __device__ void for_each(const Body& body) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (!holds(i)) continue;
      float x[kLaneElements];
      unpack(x_[i], x);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) body(x[j]);
    }
  }

  const int channels_;
  const Shared& vectors_;
  Team<kTeam>& team_;
  Packed<T> x_[kChunks];
};

template <typename T>
__device__ T* row_of(const Rows& rows, int batch, int row) {
  return static_cast<T*>(rows.data) + batch * rows.batch_stride + row * rows.row_stride;
}

/// Returns how many thread blocks a multiprocessor runs at once, so that a row and its update fit into registers. A row
/// that becomes int8 takes more registers, because it is held in fp32.
constexpr int blocks_together(int chunks, bool updates, bool int8) {
  if (int8) return chunks > 4 ? 2 : 3;
  return chunks > (updates ? 5 : 8) ? 2 : 3;
}

template <typename T, int kTeam, int kChunks, bool kUpdates, bool kInt8>
__global__ void __launch_bounds__(kThreads, blocks_together(kChunks, kUpdates, kInt8))
    norm_modulate_kernel(const __grid_constant__ NormModulate p, int rows_per_block) {
  extern __shared__ float4 shared[];
  const SharedVectors<kUpdates ? 3 : 2> vectors{reinterpret_cast<float*>(shared)};
  const RowRange range(p, rows_per_block);
  const RowEntries entries(p, range.batch);
  Team<kTeam> team;
  // There are few entries, mostly one. The loop loads the vectors of one entry into shared memory, then computes the
  // rows that use that entry.
  for (int entry = entries.first; entry < entries.end; ++entry) {
    if (!entries.any(range, entry)) continue;
    fold<T>(p, range, entry, vectors);
    __syncthreads();
    for (int row = range.first + team.index(); row < range.end; row += kWarps / kTeam) {
      if (!entries.has(row, entry)) continue;
      T* residual = row_of<T>(p.residual, range.batch, row);
      Row<T, kTeam, kChunks, kUpdates> values(p.channels, vectors, team);
      values.load(residual);
      if constexpr (kUpdates) values.add(row_of<T>(p.update, range.batch, row), residual);
      values.normalize(p.eps, p.centers);
      const auto write_8_bits = [&](auto write) {
        write(row_of<uint8_t>(p.out, range.batch, row), p.out_scale + range.batch * p.tokens + row);
      };
      if constexpr (kInt8)
        write_8_bits([&](uint8_t* to, float* scale) { values.write_int8(to, scale, p.to.rotation); });
      else if (p.out_scale == nullptr)
        values.write(row_of<T>(p.out, range.batch, row));
      else
        write_8_bits([&](uint8_t* to, float* scale) { values.write_e4m3(to, scale); });
    }
  }
}

inline int blocks_of(const NormModulate& p, int rows_per_block) {
  const int video = p.video_tokens, text = p.tokens - p.video_tokens;
  return (video + rows_per_block - 1) / rows_per_block + (text + rows_per_block - 1) / rows_per_block;
}

/// Returns the rows per block, a multiple of kWarps. The number is so large that at most `resident` blocks are needed,
/// so all blocks run at the same time.
inline int choose_rows_per_block(const NormModulate& p, int64_t resident) {
  const int64_t rows = static_cast<int64_t>(p.batch) * p.tokens;
  int64_t each = (rows + resident - 1) / resident;
  each = std::max<int64_t>(kWarps, (each + kWarps - 1) / kWarps * kWarps);
  while (static_cast<int64_t>(blocks_of(p, static_cast<int>(each))) * p.batch > resident && each < rows) each += kWarps;
  return static_cast<int>(each);
}

template <typename T, int kTeam, int kChunks, bool kUpdates, bool kInt8>
void launch(const NormModulate& p, Stream stream) {
  const auto kernel = norm_modulate_kernel<T, kTeam, kChunks, kUpdates, kInt8>;
  const int shared_bytes = (kUpdates ? 3 : 2) * kTeam * kChunks * kChunk * static_cast<int>(sizeof(float));
  attention::cuda::allow_shared_bytes(kernel, shared_bytes);
  int device = 0, processors = 0, per_processor = 0;
  attention::cuda::note(cudaGetDevice(&device));
  attention::cuda::note(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  attention::cuda::note(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, kThreads, shared_bytes));
  const int rows = choose_rows_per_block(p, static_cast<int64_t>(processors) * std::max(per_processor, 1));
  const dim3 grid(static_cast<unsigned>(blocks_of(p, rows)), static_cast<unsigned>(p.batch));
  attention::cuda::start(kernel, grid, kThreads, shared_bytes, stream, p, rows);
}

template <typename T, int kTeam, int kChunks, bool kInt8>
void launch_row(const NormModulate& p, Stream stream) {
  return p.update.data == nullptr ? launch<T, kTeam, kChunks, false, kInt8>(p, stream)
                                  : launch<T, kTeam, kChunks, true, kInt8>(p, stream);
}

template <typename T, bool kInt8>
void launch_type(const NormModulate& p, Stream stream) {
  const int chunks = (p.channels + kChunk - 1) / kChunk;
  if (chunks <= 1) return launch_row<T, 1, 1, kInt8>(p, stream);
  if (chunks <= 2) return launch_row<T, 1, 2, kInt8>(p, stream);
  if (chunks <= 4) return launch_row<T, 1, 4, kInt8>(p, stream);
  if (chunks <= 6) return launch_row<T, 1, 6, kInt8>(p, stream);
  if (chunks <= 8) return launch_row<T, 1, 8, kInt8>(p, stream);
  if (chunks <= 12) return launch_row<T, 2, 6, kInt8>(p, stream);
  if (chunks <= 20) return launch_row<T, 4, 5, kInt8>(p, stream);
  static_assert(kMaxNormChannels % (4 * kChunk) == 0);
  return launch_row<T, 4, kMaxNormChannels / (4 * kChunk), kInt8>(p, stream);
}

template <bool kInt8>
const char* run(const NormModulate& p, Stream stream) {
  return attention::cuda::launched([&] {
    p.element == Element::fp16 ? launch_type<__half, kInt8>(p, stream) : launch_type<__nv_bfloat16, kInt8>(p, stream);
  });
}

extern template const char* run<true>(const NormModulate& p, Stream stream);  // in norm_int8.cu

}  // namespace sparsereel::models::cuda::norms
