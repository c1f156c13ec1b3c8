// Many copies in one launch. Each copy has thread blocks of its own, in proportion to its words. All blocks run at
// once, so that some use the GPU's own memory while others wait for a link to another GPU.
#include <algorithm>
#include <utility>

#include "attention/cuda/launched.cuh"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models::cuda {
namespace {

// kWordsInFlight is the number of words that a thread loads before it stores the first of them.
constexpr int kThreads = 256, kWordsInFlight = 4;
constexpr int kBlocks = 396;  // three per multiprocessor of an H100, as many as its registers allow

struct Work {
  StridedCopies all;
  int first_block[kMaxCopies + 1];
};

struct Places {
  int64_t from, to;  // words from the start of the source, and of the destination
};

/// Returns where word `index` of a copy is read and written.
__device__ Places places_of(const StridedCopy& copy, int index) {
  Places places{};
#pragma unroll
  for (int dim = 0; dim < kMaxCopyDims; ++dim) {
    // For a size of 1, this saves a division. All threads of a copy take the same branch, so it costs little.
    const int above = copy.sizes[dim] == 1 ? index : index / copy.sizes[dim];
    const int here = index - above * copy.sizes[dim];
    places.from += here * copy.from_strides[dim];
    places.to += here * copy.to_strides[dim];
    index = above;
  }
  return places;
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ Work p) {
  int which = 0;
  while (static_cast<int>(blockIdx.x) >= p.first_block[which + 1]) ++which;
  const StridedCopy& copy = p.all.copies[which];
  const int first = p.first_block[which];
  const int64_t step = static_cast<int64_t>(p.first_block[which + 1] - first) * kThreads;
  const uint4* from = static_cast<const uint4*>(copy.from);
  uint4* to = static_cast<uint4*>(copy.to);
  int64_t index = static_cast<int64_t>(static_cast<int>(blockIdx.x) - first) * kThreads + threadIdx.x;
  for (; index < copy.words; index += step * kWordsInFlight) {
    uint4 held[kWordsInFlight];
    int64_t place[kWordsInFlight];
#pragma unroll
    for (int i = 0; i < kWordsInFlight; ++i) {
      if (index + i * step >= copy.words) break;
      const Places places = places_of(copy, static_cast<int>(index + i * step));
      held[i] = from[places.from];
      place[i] = places.to;
    }
#pragma unroll
    for (int i = 0; i < kWordsInFlight; ++i) {
      if (index + i * step >= copy.words) break;
      to[place[i]] = held[i];
    }
  }
}

/// Copies dimensions 0 to `dim`, with one cudaMemcpy2DAsync over dimensions 0 and 1 for each index in dimensions 2 to
/// `dim`. from and to are offsets in words.
cudaError_t copy_rows(const StridedCopy& p, int dim, int64_t from, int64_t to, cudaStream_t stream) {
  constexpr size_t kWord = sizeof(uint4);
  if (dim > 1) {
    cudaError_t status = cudaSuccess;
    for (int64_t i = 0; i < p.sizes[dim] && status == cudaSuccess; ++i)
      status = copy_rows(p, dim - 1, from + i * p.from_strides[dim], to + i * p.to_strides[dim], stream);
    return status;
  }
  const size_t width = static_cast<size_t>(p.sizes[0]) * kWord, rows = static_cast<size_t>(p.sizes[1]);
  const auto pitch = [&](int64_t stride) { return rows > 1 ? static_cast<size_t>(stride) * kWord : width; };
  return cudaMemcpy2DAsync(static_cast<uint4*>(p.to) + to, pitch(p.to_strides[1]),
                           static_cast<const uint4*>(p.from) + from, pitch(p.from_strides[1]), width, rows,
                           cudaMemcpyDefault, stream);
}

}  // namespace

const char* copy_by_engine(const StridedCopy& given, Stream stream) {
  StridedCopy p = given;
  const int longest = static_cast<int>(std::max_element(p.sizes + 1, p.sizes + kMaxCopyDims) - p.sizes);
  std::swap(p.sizes[1], p.sizes[longest]);  // copy_rows() copies dimension 1 in one call, so the longest one goes there
  std::swap(p.from_strides[1], p.from_strides[longest]);
  std::swap(p.to_strides[1], p.to_strides[longest]);
  return attention::cuda::launched([&] { attention::cuda::note(copy_rows(p, kMaxCopyDims - 1, 0, 0, stream)); });
}

const char* copy_strided(const StridedCopies& p, Stream stream) {
  Work work = {.all = p, .first_block = {}};
  int64_t all = 0;
  for (int i = 0; i < p.count; ++i) all += p.copies[i].words;
  if (all == 0) return nullptr;
  for (int i = 0; i < p.count; ++i) {
    const int64_t words = p.copies[i].words, most = (words + kThreads - 1) / kThreads;
    work.first_block[i + 1] =
        work.first_block[i] + static_cast<int>(std::min(most, std::max<int64_t>(1, kBlocks * words / all)));
  }
  return attention::cuda::launched([&] {
    attention::cuda::start(copy_kernel, static_cast<unsigned>(work.first_block[p.count]), kThreads, 0, stream, work);
  });
}

}  // namespace sparsereel::models::cuda
