// Copies bytes to a GPU through page-locked chunks: several CPU threads fill one while the GPU copies the others. The
// driver would copy from pageable memory with a single thread, which is slower.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace sparsereel::models {

class Uploader {
 public:
  /// Writes the source's bytes from byte `first` on into `to`. Several threads call it at a time.
  using Read = std::function<void(int64_t first, std::span<std::byte> to)>;

  explicit Uploader(at::Device device) : device_(device) {}

  /// Copies what `read` gives into `to`: uint8 [bytes], contiguous, on the device. Returns when all bytes are read,
  /// perhaps before they have arrived on the device. Later work on the current stream sees them. Passes on what `read`
  /// throws.
  void upload(const Read& read, const at::Tensor& to);
  void upload(std::span<const std::byte> bytes, const at::Tensor& to);

 private:
  struct Chunk {
    at::Tensor memory;               // page-locked
    std::optional<c10::Event> free;  // created on first use, since a build for CPUs has no events
  };
  Chunk& next_chunk();

  at::Device device_;
  // Before a chunk is filled again, its copy must be done. This copy waits for the work that was enqueued before it.
  // Meanwhile, the CPU fills the other chunks.
  std::array<Chunk, 4> chunks_;
  size_t turn_ = 0;
};

}  // namespace sparsereel::models
