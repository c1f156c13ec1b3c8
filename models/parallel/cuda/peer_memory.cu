// Memory for peers comes from cudaMalloc, because other processes of the host can open such memory by a handle. Kernels
// wait for other GPUs with one warp, or with one block that adds up numbers.
#include "attention/cuda/launched.cuh"
#include "models/parallel/cuda/peer_memory.h"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::launched;
using attention::cuda::note;
using attention::cuda::start;

constexpr int kSpinsBetweenLooks = 256;  // polls between reads of `ended`, which is slow to read in host memory
constexpr int kAdders = 1024;

__device__ void store_release(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// Meets the other ranks. Each thread waits for one other rank. The 32-bit number of rounds may wrap, so rounds are
/// compared by their difference.
__device__ void meet_others(const Meeting& p) {
  const int other = static_cast<int>(threadIdx.x);
  if (other >= p.ranks || other == p.rank) return;
  __threadfence_system();
  store_release(p.signals[other] + p.rank, p.round);
  const uint32_t* signal = p.signals[p.rank] + other;
  for (int spin = 1; static_cast<int32_t>(load_acquire(signal) - p.round) < 0; ++spin)
    if (spin % kSpinsBetweenLooks == 0 && *static_cast<const volatile int*>(p.ended) != 0) return;
}

__global__ void meet_kernel(const __grid_constant__ Meeting p) {
  meet_others(p);
}

__global__ void __launch_bounds__(kAdders) add_up_kernel(const __grid_constant__ Addition p) {
  const int ranks = p.meeting.ranks, rank = p.meeting.rank;
  for (int i = static_cast<int>(threadIdx.x); i < p.count; i += kAdders) {
    const int64_t own = p.numbers[i];
    for (int other = 0; other < ranks; ++other) p.slots[other][rank * kMaxAdded + i] = own;
  }
  __threadfence_system();
  __syncthreads();
  meet_others(p.meeting);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < p.count; i += kAdders) {
    int64_t sum = 0;
    for (int other = 0; other < ranks; ++other) sum += __ldcv(p.slots[rank] + other * kMaxAdded + i);
    p.numbers[i] = sum;
  }
}

static_assert(sizeof(MemoryHandle) == sizeof(cudaIpcMemHandle_t));

}  // namespace

const char* allocate_for_peers(size_t bytes, void** memory, MemoryHandle* handle) {
  return launched([&] {
    void* room = nullptr;
    cudaError_t status = cudaMalloc(&room, bytes);
    if (status == cudaSuccess) status = cudaMemset(room, 0, bytes);
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaSuccess) status = cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t*>(handle), room);
    if (status != cudaSuccess && room != nullptr) cudaFree(room);
    *memory = status == cudaSuccess ? room : nullptr;
    note(status);
  });
}

const char* open_memory_of_peer(const MemoryHandle& handle, void** memory) {
  return launched([&] {
    note(cudaIpcOpenMemHandle(memory, reinterpret_cast<const cudaIpcMemHandle_t&>(handle),
                              cudaIpcMemLazyEnablePeerAccess));
  });
}

void close_memory_of_peer(void* memory) {
  launched([&] { note(cudaIpcCloseMemHandle(memory)); });
}

void free_memory_for_peers(void* memory) {
  launched([&] { note(cudaFree(memory)); });
}

void wait_for_device() {
  launched([&] { note(cudaDeviceSynchronize()); });
}

const char* add_up(const Addition& p, Stream stream) {
  return launched([&] { start(add_up_kernel, 1, kAdders, 0, stream, p); });
}

const char* meet(const Meeting& p, Stream stream) {
  return launched([&] { start(meet_kernel, 1, 32, 0, stream, p); });
}

}  // namespace sparsereel::models::cuda
