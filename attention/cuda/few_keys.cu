// Attention to so few keys that shared memory holds them all: in 16 bits, after FlashAttention-2 (Dao, arXiv
// 2307.08691). A CTA keeps one head's keys and values for thousands of queries, of which each warp takes 16 at a time,
// with the next 16 on their way. A query's norm is a factor of its scores, and its weights are part of the keys.
#include <algorithm>

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/kernels.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/mma.cuh"
#include "attention/cuda/output_scale.cuh"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/records.h"
#include "attention/cuda/rows.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = 16;              // queries of a warp
constexpr int kLongStep = 64;          // keys between two looks at the largest score
constexpr int kShortStep = 32;         // where the other half of a long step would be padding
constexpr float kLeastScore = -1e30F;  // of a row that has no key yet

/// Rows of 16-bit elements in shared memory, padded so that eight of them lie in different banks.
template <int D>
constexpr int kRowBytes = 2 * D + 16;

template <int D>
struct Layout {
  uint32_t keys, values, queries, bias;

  __device__ Layout(uint32_t base, int padded_keys)
      : keys(base),
        values(keys + static_cast<uint32_t>(padded_keys * kRowBytes<D>)),
        queries(values + static_cast<uint32_t>(padded_keys * kRowBytes<D>)),
        bias(queries + kWarps * kRows * kRowBytes<D>) {}
};

template <int D>
constexpr int shared_bytes(int padded_keys) {
  return (2 * padded_keys + kWarps * kRows) * kRowBytes<D> + padded_keys * static_cast<int>(sizeof(float));
}

__host__ __device__ constexpr int padded(int keys, int step) {
  return ceil_div(keys, step) * step;
}

template <typename T>
__device__ const T* row_of(const View& view, int b, int token, int h) {
  return static_cast<const T*>(view.data) + b * view.batch_stride + token * view.token_stride + h * view.head_stride;
}

/// 1 / deviation of a token, where there is a norm.
__device__ float inverse_of(const float* moments, int token) {
  return moments == nullptr ? 1 : moments[2 * token + 1];
}

__device__ void store_shared(uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ void store_shared(uint32_t to, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

/// Normalised and weighted keys of a head; the queries' weights are multiplied in here too.
template <typename T, int D>
__device__ void fill_keys(const Problem& p, const float* moments, int b, int h, int padded_keys, uint32_t to) {
  const Prologue& prologue = p.prologue;
  const float* of_keys = moments_of(p, moments, false, b);
  for (int i = static_cast<int>(threadIdx.x); i < padded_keys * (D / kLaneElements); i += kThreads) {
    const int key = i / (D / kLaneElements), column = i % (D / kLaneElements) * kLaneElements;
    Packed<T> packed{};
    if (key < p.keys) {
      packed = load_packed(row_of<T>(p.k, b, key, h) + column);
      float x[kLaneElements];
      unpack(packed, x);
      const float norm = inverse_of(of_keys, key);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) {
        const int channel = h * D + column + j;
        x[j] *= norm * (prologue.q_weight == nullptr ? 1 : prologue.q_weight[channel]) *
                (prologue.k_weight == nullptr ? 1 : prologue.k_weight[channel]);
      }
      packed = pack<T>(x);
    }
    store_shared(to + key * kRowBytes<D> + 2 * column, reinterpret_cast<const uint4&>(packed));
  }
}

/// Values with their channels in such an order that a lane's results of four tiles are eight neighbours: of 32
/// channels the one at 8 t + 2 j + e goes to 8 j + 2 t + e.
template <typename T, int D>
__device__ void fill_values(const Problem& p, int b, int h, int padded_keys, uint32_t to) {
  for (int i = static_cast<int>(threadIdx.x); i < padded_keys * (D / kLaneElements); i += kThreads) {
    const int key = i / (D / kLaneElements), piece = i % (D / kLaneElements);
    Packed<T> packed{};
    if (key < p.keys) packed = load_packed(row_of<T>(p.v, b, key, h) + piece * kLaneElements);
    const auto* pairs = reinterpret_cast<const uint32_t*>(packed.element);
    const uint32_t first = to + key * kRowBytes<D> + 64 * (piece / 4) + 4 * (piece % 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) store_shared(first + 16 * j, pairs[j]);
  }
}

/// In units of log2, -inf past the keys.
__device__ void fill_bias(const Problem& p, int b, int padded_keys, float* to) {
  for (int key = static_cast<int>(threadIdx.x); key < padded_keys; key += kThreads) {
    to[key] = key >= p.keys ? -INFINITY : p.key_bias == nullptr ? 0.0F : p.key_bias[b * p.keys + key] * kLog2e;
  }
}

/// 16 queries of a head and what becomes of them, outputs or, of a single step's keys, weights; all lanes of a warp
/// together. Fragments as in mma.cuh.
template <typename T, int D, int kStepKeys, bool kWeights>
class Queries {
 public:
  __device__ Queries(const Problem& p, const float* moments, int b, int h, const Layout<D>& layout)
      : p_(p),
        moments_(moments_of(p, moments, true, b)),
        b_(b),
        h_(h),
        layout_(layout),
        mine_(layout.queries + warp() * kRows * kRowBytes<D>) {}

  /// Starts to copy the rows from `first` on; past the last one that row again.
  __device__ void prefetch(int first) const {
    constexpr int kPieces = D / kLaneElements;
#pragma unroll
    for (int i = lane(); i < kRows * kPieces; i += 32) {
      const T* from = row_of<T>(p_.q, b_, min(first + i / kPieces, p_.queries - 1), h_) + i % kPieces * kLaneElements;
      copy_async(mine_ + i / kPieces * kRowBytes<D> + i % kPieces * 16, from);
    }
    commit_copies();
  }

  /// Waits for what was asked for, attends, and asks for the rows from `next` on as soon as there is room.
  __device__ void attend(int first, int next, int end, const float* bias) {
    wait_copies<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      load_matrices(q_[i], mine_ + lane() % 16 * kRowBytes<D> + lane() / 16 * 16 + i * 32);
    __syncwarp();
    if (next < end) prefetch(next);
    begin(first);
    float s[kTiles][4];
    if constexpr (kWeights) {
      weigh(0, bias, s);
      write_weights(first, s);
    } else {
      for (int key = 0; key < p_.keys; key += kStepKeys) {
        weigh(key, bias, s);
        add_values(key, s);
      }
      write(first);
    }
  }

 private:
  static constexpr int kTiles = kStepKeys / 8;

  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  static __device__ int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }

  /// The lane's rows are first + lane / 4 and the one 8 further.
  __device__ void begin(int first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(first + lane() / 4 + 8 * r, p_.queries - 1);
      factor_[r] = inverse_of(moments_, row) * p_.scale * kLog2e;
      most_[r] = kLeastScore;
      sum_[r] = 0;
    }
#pragma unroll
    for (int i = 0; i < D / 8; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
  }

  /// s: weights of a step's keys, not yet divided by their sum.
  __device__ void weigh(int first_key, const float* bias, float (&s)[kTiles][4]) {
    scores(first_key, s);
    float most[2] = {most_[0], most_[1]};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const float2 more = *reinterpret_cast<const float2*>(bias + first_key + 8 * i + lane() % 4 * 2);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = fmaf(s[i][j], factor_[j / 2], j % 2 == 0 ? more.x : more.y);
        most[j / 2] = fmaxf(most[j / 2], s[i][j]);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[r] = fmaxf(most[r], __shfl_xor_sync(~0U, most[r], 1));
      most[r] = fmaxf(most[r], __shfl_xor_sync(~0U, most[r], 2));
      const float less = fast_exp2(most_[r] - most[r]);
      most_[r] = most[r];
      sum_[r] *= less;
#pragma unroll
      for (int i = 0; i < D / 8; ++i) {
        out_[i][2 * r] *= less;
        out_[i][2 * r + 1] *= less;
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = fast_exp2(s[i][j] - most_[j / 2]);
        sum_[j / 2] += s[i][j];
      }
    }
  }

  __device__ void scores(int first_key, float (&s)[kTiles][4]) const {
    const uint32_t row = layout_.keys + (first_key + lane() % 8) * kRowBytes<D> + lane() / 8 * 16;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
      for (int d = 0; d < D / 32; ++d) {
        uint32_t k[4];
        load_matrices(k, row + i * 8 * kRowBytes<D> + d * 64);
        multiply(s[i], q_[2 * d], k[0], k[1]);
        multiply(s[i], q_[2 * d + 1], k[2], k[3]);
      }
    }
  }

  __device__ void add_values(int first_key, const float (&s)[kTiles][4]) {
    const uint32_t row = layout_.values + (first_key + lane() % 16) * kRowBytes<D> + lane() / 16 * 16;
#pragma unroll
    for (int i = 0; i < kTiles; i += 2) {
      const uint32_t weights[4] = {pair(s[i][0], s[i][1]), pair(s[i][2], s[i][3]), pair(s[i + 1][0], s[i + 1][1]),
                                   pair(s[i + 1][2], s[i + 1][3])};
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32_t v[4];
        load_matrices_transposed(v, row + i * 8 * kRowBytes<D> + d * 32);
        multiply(out_[2 * d], weights, v[0], v[1]);
        multiply(out_[2 * d + 1], weights, v[2], v[3]);
      }
    }
  }

  __device__ void write(int first) const {
    const float inverse_scale = inverse_out_scale(p_, b_);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float inverse = inverse_scale * inverse_sum(r);
      const int row = first + lane() / 4 + 8 * r;
      if (row >= p_.queries) continue;
#pragma unroll
      for (int i = 0; i < D / 32; ++i) {
        float x[kLaneElements];
#pragma unroll
        for (int j = 0; j < kLaneElements; ++j) x[j] = out_[4 * i + j / 2][2 * r + j % 2] * inverse;
        const int column = 32 * i + lane() % 4 * kLaneElements;
        p_.out_scale == nullptr ? store_packed(out_row<T>(row) + column, pack<T>(x))
                                : store_e4m3(out_row<uint8_t>(row) + column, x);
      }
    }
  }

  /// A lane has two neighbouring keys of every eight.
  __device__ void write_weights(int first, const float (&s)[kTiles][4]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float inverse = inverse_sum(r) * (p_.out_scale == nullptr ? 1.0F : kE4m3Max);
      const int row = first + lane() / 4 + 8 * r;
      if (row >= p_.queries) continue;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (8 * i >= p_.keys) break;
        const int key = 8 * i + lane() % 4 * 2;
        const float a = s[i][2 * r] * inverse, b = s[i][2 * r + 1] * inverse;
        if (p_.out_scale == nullptr) {
          *reinterpret_cast<uint32_t*>(out_row<T>(row) + key) = pair(a, b);
        } else {
          *reinterpret_cast<uint16_t*>(out_row<uint8_t>(row) + key) = static_cast<uint16_t>(e4m3x4(a, b, 0, 0));
        }
      }
    }
  }

  /// 1 / the sum of the weights of row r; 0 where there are none.
  __device__ float inverse_sum(int r) const {
    float sum = sum_[r] + __shfl_xor_sync(~0U, sum_[r], 1);
    sum += __shfl_xor_sync(~0U, sum, 2);
    return sum > 0 ? 1 / sum : 0;
  }

  template <typename Out>
  __device__ Out* out_row(int row) const {
    return const_cast<Out*>(row_of<Out>(p_.out, b_, row, h_));
  }

  static __device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_16(T{}, c, a, b0, b1);
  }
  static __device__ void multiply_16(__half, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_half(c, a, b0, b1);
  }
  static __device__ void multiply_16(__nv_bfloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    multiply_bfloat16(c, a, b0, b1);
  }
  static __device__ uint32_t pair(float low, float high) {
    T two[2];
    from_float(low, two[0]);
    from_float(high, two[1]);
    return reinterpret_cast<const uint32_t&>(two);
  }

  const Problem& p_;
  const float* moments_;
  const int b_, h_;
  const Layout<D>& layout_;
  const uint32_t mine_;
  uint32_t q_[D / 16][4];
  float out_[D / 8][4];
  float factor_[2], most_[2], sum_[2];
};

/// The output's scales, from all values: a CTA looks at those of a key.
template <typename T>
__global__ void __launch_bounds__(kThreads) find_out_scale(const __grid_constant__ Problem p) {
  const int key = static_cast<int>(blockIdx.x), b = static_cast<int>(blockIdx.y), pieces = p.head_dim / kLaneElements;
  float most = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.heads * pieces; i += kThreads) {
    float x[kLaneElements];
    unpack(load_packed(row_of<T>(p.v, b, key, i / pieces) + i % pieces * kLaneElements), x);
#pragma unroll
    for (const float value : x) most = fmaxf(most, fabsf(value));
  }
  raise_out_scale(most, p.out_scale + b);
}

/// The CTAs share all rows of all heads evenly; few have more than one head.
template <typename T, int D, int kStepKeys, bool kWeights>
__global__ void __launch_bounds__(kThreads, 1)
    few_keys_kernel(const __grid_constant__ Problem p, const float* moments) {
  extern __shared__ uint4 shared[];
  const int padded_keys = padded(p.keys, kStepKeys);
  const Layout<D> layout(shared_address(shared), padded_keys);
  float* bias = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(shared) + (layout.bias - layout.keys));
  const int units = ceil_div(p.queries, kRows);  // of a head
  const int64_t all = static_cast<int64_t>(p.batch) * p.heads * units;
  const int64_t begin = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
  for (int64_t unit = begin; unit < end;) {
    const int bh = static_cast<int>(unit / units), b = bh / p.heads, h = bh % p.heads;
    const int64_t stop = min(end, static_cast<int64_t>(bh + 1) * units);
    __syncthreads();  // nobody reads the last head any more
    fill_keys<T, D>(p, moments, b, h, padded_keys, layout.keys);
    if (!kWeights) fill_values<T, D>(p, b, h, padded_keys, layout.values);
    fill_bias(p, b, padded_keys, bias);
    __syncthreads();
    const int first = static_cast<int>(unit % units) * kRows, last = first + static_cast<int>(stop - unit) * kRows;
    const int mine = first + static_cast<int>(threadIdx.x) / 32 * kRows;
    Queries<T, D, kStepKeys, kWeights> queries(p, moments, b, h, layout);
    if (mine < last) queries.prefetch(mine);
    for (int row = mine; row < last; row += kWarps * kRows) queries.attend(row, row + kWarps * kRows, last, bias);
    unit = stop;
  }
}

template <typename T, int D, int kStepKeys, bool kWeights>
void launch(const Problem& p, const float* moments, Stream stream) {
  const auto kernel = few_keys_kernel<T, D, kStepKeys, kWeights>;
  const int bytes = shared_bytes<D>(padded(p.keys, kStepKeys));
  allow_shared_bytes(kernel, bytes);
  int device = 0, processors = 0;
  note(cudaGetDevice(&device));
  note(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  start(kernel, static_cast<unsigned>(processors), kThreads, bytes, stream, p, moments);
}

template <typename T, int D, bool kWeights>
void launch_step(const Problem& p, const float* moments, Stream stream) {
  const bool is_short = padded(p.keys, kShortStep) < padded(p.keys, kLongStep);
  is_short ? launch<T, D, kShortStep, kWeights>(p, moments, stream)
           : launch<T, D, kLongStep, kWeights>(p, moments, stream);
}

template <typename T>
void launch_out_scale(const Problem& p, Stream stream) {
  if (p.out_scale == nullptr) return;
  note(cudaMemsetAsync(p.out_scale, 0, sizeof(float) * p.batch, stream));
  start(find_out_scale<T>, dim3(static_cast<unsigned>(p.keys), static_cast<unsigned>(p.batch)), kThreads, 0, stream, p);
}

template <typename T, bool kWeights>
void launch_type(const Problem& p, const float* moments, Stream stream) {
  if (!kWeights) launch_out_scale<T>(p, stream);
  p.head_dim == 64 ? launch_step<T, 64, kWeights>(p, moments, stream)
                   : launch_step<T, 128, kWeights>(p, moments, stream);
}

template <bool kWeights>
const char* launch_all(const Problem& p, float* moments, Stream stream) {
  if (!p.prologue.normalises_across_heads()) moments = nullptr;
  return launched([&] {
    launch_moments(p, moments, stream);
    p.element == Element::fp16 ? launch_type<__half, kWeights>(p, moments, stream)
                               : launch_type<__nv_bfloat16, kWeights>(p, moments, stream);
  });
}

bool takes(const Prologue& prologue) {
  using Norm = Prologue::Norm;
  const bool norms = prologue.norm == Norm::none || (prologue.norm == Norm::rms && prologue.across_heads);
  return norms && prologue.rotary == nullptr && !prologue.is_by_part() && prologue.q_bias == nullptr &&
         prologue.k_bias == nullptr;
}

bool sees_all(const Problem& p) {
  return p.group == 1 && !p.causal && p.key_lengths == nullptr && p.selection.kind == Selection::Kind::dense;
}

/// Null, or why p cannot run.
const char* refusal(const Problem& p, int most_keys) {
  if (p.keys > most_keys) return "too many keys for shared memory, or a head_dim other than 64 and 128";
  if (!sees_all(p) || p.lse != nullptr || !takes(p.prologue))
    return "few keys come without groups of heads, mask, lse and such a prologue";
  return nullptr;
}

}  // namespace

int most_few_keys(int head_dim) {
  int device = 0, bytes = 0, capability = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device);
  const auto needed = head_dim == 64 ? shared_bytes<64> : shared_bytes<128>;
  int keys = 0;
  while (capability >= 8 && (head_dim == 64 || head_dim == 128) && needed(keys + kLongStep) <= bytes) keys += kLongStep;
  return keys;
}

const char* attend_few_keys(const Problem& p, float* moments, Stream stream) {
  if (const char* why = refusal(p, most_few_keys(p.head_dim))) return why;
  return launch_all<false>(p, moments, stream);
}

const char* weigh_few_keys(const Problem& p, float* moments, Stream stream) {
  static_assert(kMostWeighedKeys <= kLongStep);
  if (const char* why = refusal(p, std::min(kMostWeighedKeys, most_few_keys(p.head_dim)))) return why;
  return launch_all<true>(p, moments, stream);
}

}  // namespace sparsereel::attention::cuda
