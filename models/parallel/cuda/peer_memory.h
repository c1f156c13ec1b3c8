// Memory of one GPU that others write to, and how they tell each other that they have: plain functions, no torch, no
// CUDA header. What fails returns what CUDA said; null: nothing did.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cuda/launch.h"

namespace sparsereel::models::cuda {

using attention::cuda::Stream;

constexpr int kMaxPeers = 16;

/// By which another process of this host finds the memory.
struct MemoryHandle {
  char bytes[64]{};
};

/// Zeros, on the current device.
const char* allocate_for_peers(size_t bytes, void** memory, MemoryHandle* handle);
/// Of another process, for the current device.
const char* open_memory_of_peer(const MemoryHandle& handle, void** memory);
void close_memory_of_peer(void* memory);
void free_memory_for_peers(void* memory);
/// Waits for all that was enqueued on the current device.
void wait_for_device();

/// Ranks that wait for each other. `signals`, of each rank, lie in its own GPU's memory: one for each rank.
struct Meeting {
  uint32_t* signals[kMaxPeers]{};
  int ranks = 0, rank = 0;
  uint32_t round = 0;          // one more than the last one's
  const int* ended = nullptr;  // in the host's memory: where it is not 0, nobody is waited for any more
};

/// What was enqueued before it is done for the others once they are through; what is enqueued behind it waits for them.
const char* meet(const Meeting& p, Stream stream);

constexpr int kMaxAdded = 4096;

/// In place, numbers [count] become the sums of all ranks': in one launch, for which they are to be few.
struct Addition {
  Meeting meeting{};
  int64_t* slots[kMaxPeers]{};  // of each rank, in its own GPU's memory: [ranks, kMaxAdded]
  int64_t* numbers = nullptr;
  int count = 0;  // at most kMaxAdded
};

const char* add_up(const Addition& p, Stream stream);

}  // namespace sparsereel::models::cuda
