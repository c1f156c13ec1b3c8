// Double-buffered copies to a GPU.
#include "models/store/weights/upload.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>

namespace sparsereel::models {
namespace {

// Chunks are so large that the time to start a copy hardly matters, and so small that the last copy ends soon.
constexpr int64_t kChunkBytes = int64_t{16} << 20;
constexpr int64_t kGrain = int64_t{1} << 20;  // minimum bytes per thread

/// Copies bytes of a mapped file with several threads, because reading them causes page faults: a single thread handles
/// these more slowly than the bus transfers the pages.
void copy_in_parallel(std::byte* to, const std::byte* from, int64_t bytes) {
  at::parallel_for(0, bytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

Uploader::Chunk& Uploader::next_chunk() {
  Chunk& chunk = chunks_[turn_++ % chunks_.size()];
  if (chunk.memory.defined()) {
    chunk.free->synchronize();
  } else {
    chunk.memory = at::empty({kChunkBytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    chunk.free.emplace(device_.type());
  }
  return chunk;
}

void Uploader::upload(std::span<const std::byte> bytes, const at::Tensor& to) {
  const auto total = static_cast<int64_t>(bytes.size());
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  for (int64_t done = 0; done < total; done += kChunkBytes) {
    const int64_t size = std::min(kChunkBytes, total - done);
    Chunk& chunk = next_chunk();
    copy_in_parallel(reinterpret_cast<std::byte*>(chunk.memory.mutable_data_ptr()), bytes.data() + done, size);
    to.narrow(0, done, size).copy_(chunk.memory.narrow(0, 0, size), /*non_blocking=*/true);
    chunk.free->record(stream);
  }
}

at::Tensor Uploader::upload(std::span<const std::byte> bytes) {
  at::Tensor result =
      at::empty({static_cast<int64_t>(bytes.size())}, at::TensorOptions().dtype(at::kByte).device(device_));
  upload(bytes, result);
  return result;
}

}  // namespace sparsereel::models
