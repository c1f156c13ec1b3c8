// Copies bytes of a mapped file to a GPU through two page-locked chunks: the CPU fills one while the GPU copies the
// other. The driver would copy from pageable memory with a single thread, which is slower.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace sparsereel::models {

class Uploader {
 public:
  explicit Uploader(at::Device device) : device_(device) {}

  /// Copies into `to`: uint8 [bytes.size()], contiguous, on the device. Returns when the bytes are read, perhaps before
  /// they have arrived on the device. Later work on the current stream sees them.
  void upload(std::span<const std::byte> bytes, const at::Tensor& to);
  at::Tensor upload(std::span<const std::byte> bytes);  // copies into a new tensor

 private:
  struct Chunk {
    at::Tensor memory;               // page-locked
    std::optional<c10::Event> free;  // created on first use, since a build for CPUs has no events
  };
  Chunk& next_chunk();

  at::Device device_;
  std::array<Chunk, 2> chunks_;
  size_t turn_ = 0;
};

}  // namespace sparsereel::models
