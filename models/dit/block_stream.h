// Blocks of a model that is larger than the GPU: they stay in the host's memory and visit the GPU one after the other.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <vector>

namespace sparsereel::models {

/// All blocks have tensors of the same shapes and dtypes, and run in order, over and over. Two buffers on the GPU:
/// while one block computes, the next one is copied on a stream of its own.
class BlockStream {
 public:
  explicit BlockStream(at::Device device);
  ~BlockStream();
  BlockStream(const BlockStream&) = delete;
  BlockStream& operator=(const BlockStream&) = delete;

  /// Moves the next block's tensors from the GPU into page-locked memory and leaves them undefined; undefined ones stay
  /// so.
  void take(const std::vector<at::Tensor*>& tensors);

  /// Makes the tensors those of block `index`, for work that is enqueued on the current stream before the next call,
  /// and begins to copy the block after it. Call it for the blocks in turn: any other order is right, but waits.
  void visit(size_t index, const std::vector<at::Tensor*>& tensors);

 private:
  struct Place {  // of a tensor in a block's buffer
    int64_t offset = 0;
    std::vector<int64_t> sizes;
    at::ScalarType dtype = at::kFloat;
    bool defined = false;
  };
  struct Buffer {
    at::Tensor memory;
    c10::Event copied;
    size_t block = 0;
    bool filled = false;
  };

  void plan(const std::vector<at::Tensor*>& tensors);
  at::Tensor view(const at::Tensor& memory, const Place& place) const;
  bool holds(const Buffer& buffer, size_t index) const { return buffer.filled && buffer.block == index; }
  void reserve(Buffer& buffer) const;
  void copy(size_t index, Buffer& buffer);

  at::Device device_;
  c10::Stream side_;
  c10::Event reached_;  // by the current stream: what it has used before, it has used
  std::vector<Place> places_;
  int64_t bytes_ = 0;                          // of one block
  std::vector<std::vector<at::Tensor>> host_;  // page-locked chunks of each block, end to end
  std::array<Buffer, 2> buffers_;
  size_t last_ = 1;  // the buffer that was visited last
};

}  // namespace sparsereel::models
