// Attention in 16 bits for so few keys that all of them fit into shared memory, after FlashAttention-2 (Dao, arXiv
// 2307.08691). A CTA keeps the keys and values of one head for thousands of queries. Each warp computes 16 queries
// while the next 16 are loaded. The norm of a query is applied in two parts: 1 / deviation scales the scores of the
// query, and the norm's weights are multiplied into the keys.
#include <algorithm>

#include "attention/cuda/fast_math.cuh"
#include "attention/cuda/few_keys/queries.cuh"
#include "attention/cuda/kernels.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/output_scale.cuh"
#include "attention/cuda/packed.cuh"
#include "attention/cuda/rows.cuh"

namespace sparsereel::attention::cuda {
namespace few_keys {
namespace {

__device__ void store_shared(uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
__device__ void store_shared(uint32_t to, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

/// Writes the normalized keys of a head to shared memory. They are multiplied by the weights of the norm of k and of
/// the norm of q.
template <typename T, int D>
__device__ void fill_keys(const KernelParams& p, const float* moments, int b, int h, int padded_keys, uint32_t to) {
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

/// Writes the values of a head to shared memory. The channels are reordered so that the results of a lane in four
/// channel tiles are eight neighboring channels: in each 32 channels, channel 8 t + 2 j + e goes to position 8 j + 2 t
/// + e.
template <typename T, int D>
__device__ void fill_values(const KernelParams& p, int b, int h, int padded_keys, uint32_t to) {
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

/// Writes the bias of each key in log2 units; -inf past the last key.
__device__ void fill_bias(const KernelParams& p, int b, int padded_keys, float* to) {
  for (int key = static_cast<int>(threadIdx.x); key < padded_keys; key += kThreads) {
    to[key] = key >= p.keys ? -INFINITY : p.key_bias == nullptr ? 0.0F : p.key_bias[b * p.keys + key] * kLog2e;
  }
}

/// Computes the output scale of each batch entry from all its values. Each CTA reads the values of one key.
template <typename T>
__global__ void __launch_bounds__(kThreads) find_out_scale(const __grid_constant__ KernelParams p) {
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

/// Computes all heads. The queries of all heads are divided evenly among the CTAs. A CTA loads keys and values again
/// when it comes to the next head.
template <typename T, int D, int kStepKeys, bool kWeights>
__global__ void __launch_bounds__(kThreads, 1)
    few_keys_kernel(const __grid_constant__ KernelParams p, const float* moments) {
  extern __shared__ uint4 shared[];
  const int padded_keys = padded(p.keys, kStepKeys);
  const Layout<D> layout(shared_address(shared), padded_keys);
  float* bias = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(shared) + (layout.bias - layout.keys));
  const int units = ceil_div(p.queries, kRows);  // groups of kRows queries in a head
  const int64_t all = static_cast<int64_t>(p.batch) * p.heads * units;
  const int64_t begin = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
  for (int64_t unit = begin; unit < end;) {
    const int bh = static_cast<int>(unit / units), b = bh / p.heads, h = bh % p.heads;
    const int64_t stop = min(end, static_cast<int64_t>(bh + 1) * units);
    __syncthreads();  // until here, a warp may still read the keys of the previous head
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
void launch(const KernelParams& p, const float* moments, Stream stream) {
  const auto kernel = few_keys_kernel<T, D, kStepKeys, kWeights>;
  const int bytes = shared_bytes<D>(padded(p.keys, kStepKeys));
  allow_shared_bytes(kernel, bytes);
  int device = 0, processors = 0;
  note(cudaGetDevice(&device));
  note(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  start(kernel, static_cast<unsigned>(processors), kThreads, bytes, stream, p, moments);
}

template <typename T, int D, bool kWeights>
void launch_step(const KernelParams& p, const float* moments, Stream stream) {
  const bool is_short = padded(p.keys, kShortStep) < padded(p.keys, kLongStep);
  is_short ? launch<T, D, kShortStep, kWeights>(p, moments, stream)
           : launch<T, D, kLongStep, kWeights>(p, moments, stream);
}

template <typename T>
void launch_out_scale(const KernelParams& p, Stream stream) {
  if (p.out_scale == nullptr) return;
  note(cudaMemsetAsync(p.out_scale, 0, sizeof(float) * p.batch, stream));
  start(find_out_scale<T>, dim3(static_cast<unsigned>(p.keys), static_cast<unsigned>(p.batch)), kThreads, 0, stream, p);
}

template <typename T, bool kWeights>
void launch_type(const KernelParams& p, const float* moments, Stream stream) {
  if (!kWeights) launch_out_scale<T>(p, stream);
  p.head_dim == 64 ? launch_step<T, 64, kWeights>(p, moments, stream)
                   : launch_step<T, 128, kWeights>(p, moments, stream);
}

template <bool kWeights>
const char* launch_all(const KernelParams& p, float* moments, Stream stream) {
  if (!p.prologue.normalizes_across_heads()) moments = nullptr;
  return launched([&] {
    launch_moments(p, moments, stream);
    p.element == Element::fp16 ? launch_type<__half, kWeights>(p, moments, stream)
                               : launch_type<__nv_bfloat16, kWeights>(p, moments, stream);
  });
}

bool takes(const Prologue& prologue) {
  using Norm = Prologue::Norm;
  const bool norms = prologue.norm == Norm::none || (prologue.norm == Norm::rms && prologue.across_heads);
  return norms && prologue.rotary_pairs == nullptr && !prologue.is_by_part() && prologue.q_bias == nullptr &&
         prologue.k_bias == nullptr;
}

bool sees_all(const KernelParams& p) {
  return p.group() == 1 && !p.causal && p.key_lengths == nullptr && p.selection.kind == Selection::Kind::dense;
}

/// Returns null if the kernel can run p, otherwise the reason why it cannot.
const char* refusal(const KernelParams& p, int most_keys) {
  if (p.keys > most_keys) return "too many keys for shared memory, or a head_dim other than 64 and 128";
  if (!sees_all(p) || p.lse != nullptr || !takes(p.prologue))
    return "the kernel for few keys supports no grouped heads, mask or lse, and no prologue but an RMS norm across "
           "heads";
  return nullptr;
}

}  // namespace
}  // namespace few_keys

int most_few_keys(int head_dim) {
  int device = 0, bytes = 0, capability = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device);
  const auto needed = head_dim == 64 ? few_keys::shared_bytes<64> : few_keys::shared_bytes<128>;
  int keys = 0;
  while (capability >= 8 && (head_dim == 64 || head_dim == 128) && needed(keys + few_keys::kLongStep) <= bytes)
    keys += few_keys::kLongStep;
  return keys;
}

const char* attend_few_keys(const KernelParams& p, float* moments, Stream stream) {
  if (const char* why = few_keys::refusal(p, most_few_keys(p.head_dim))) return why;
  return few_keys::launch_all<false>(p, moments, stream);
}

const char* weigh_few_keys(const KernelParams& p, float* moments, Stream stream) {
  static_assert(kMostWeighedKeys <= few_keys::kLongStep);
  if (const char* why = few_keys::refusal(p, std::min(kMostWeighedKeys, most_few_keys(p.head_dim)))) return why;
  return few_keys::launch_all<true>(p, moments, stream);
}

}  // namespace sparsereel::attention::cuda
