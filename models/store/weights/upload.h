// Copies bytes of a mapped file to a GPU through page-locked chunks. The CPU fills one while the GPU copies the other.
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

  /// Copies into `to`: uint8 [bytes.size()], contiguous, on the device. Returns once the bytes are read, before they
  /// have arrived on the device; later work on the current stream sees them. The host needs only two page-locked
  /// chunks. The driver would copy from pageable memory with a single thread.
  void upload(std::span<const std::byte> bytes, const at::Tensor& to);
  at::Tensor upload(std::span<const std::byte> bytes);

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
