// GPU memory that other GPUs write to, and kernels that wait for each other. Plain functions, no torch, no CUDA header.
// Functions return CUDA's error text, or null on success.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cuda/launch.h"

namespace sparsereel::models::cuda {

using attention::cuda::Stream;

constexpr int kMaxPeers = 16;

/// A handle by which another process of this host opens the memory.
struct MemoryHandle {
  char bytes[64]{};
};

/// Allocates zeroed memory on the current device.
const char* allocate_for_peers(size_t bytes, void** memory, MemoryHandle* handle);
/// Opens another process's memory for the current device.
const char* open_memory_of_peer(const MemoryHandle& handle, void** memory);
void close_memory_of_peer(void* memory);
void free_memory_for_peers(void* memory);
/// Waits for all work enqueued on the current device.
void wait_for_device();

/// A meeting: a round in which all ranks wait for each other. signals[i] points to memory on rank i's GPU. It holds one
/// number for each rank, into which that rank writes its round.
struct Meeting {
  uint32_t* signals[kMaxPeers]{};
  int ranks = 0, rank = 0;
  uint32_t round = 0;          // one more than in the last round
  const int* ended = nullptr;  // in host memory; ranks stop waiting once it is not 0
};

/// Enqueues a meeting. Work that is enqueued later begins when all ranks have reached the meeting. It sees what the
/// other ranks wrote before the meeting.
const char* meet(const Meeting& p, Stream stream);

constexpr int kMaxAdded = 4096;

/// Replaces numbers [count] by their sums over all ranks, in one launch.
struct Addition {
  Meeting meeting{};
  int64_t* slots[kMaxPeers]{};  // slots[i] is memory on rank i's GPU: [ranks, kMaxAdded]
  int64_t* numbers = nullptr;
  int count = 0;  // at most kMaxAdded
};

const char* add_up(const Addition& p, Stream stream);

}  // namespace sparsereel::models::cuda
