// Copies to a GPU through a ring of chunks.
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

void Uploader::upload(const Read& read, const at::Tensor& to) {
  const int64_t total = to.numel();
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  for (int64_t done = 0; done < total; done += kChunkBytes) {
    const int64_t size = std::min(kChunkBytes, total - done);
    Chunk& chunk = next_chunk();
    auto* memory = reinterpret_cast<std::byte*>(chunk.memory.mutable_data_ptr());
    // One thread reads more slowly than the bus transfers.
    at::parallel_for(0, size, kGrain, [&](int64_t begin, int64_t end) {
      read(done + begin, {memory + begin, static_cast<size_t>(end - begin)});
    });
    to.narrow(0, done, size).copy_(chunk.memory.narrow(0, 0, size), /*non_blocking=*/true);
    chunk.free->record(stream);
  }
}

void Uploader::upload(std::span<const std::byte> bytes, const at::Tensor& to) {
  upload([bytes](int64_t first,
                 std::span<std::byte> part) { std::memcpy(part.data(), bytes.data() + first, part.size()); },
         to);
}

}  // namespace sparsereel::models
