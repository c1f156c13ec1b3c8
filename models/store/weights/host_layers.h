// Runs a model that is larger than the GPU: its layers stay in host memory and are copied to the GPU in turn.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <vector>

#include "models/store/weights/layer_weights.h"

namespace sparsereel::models {

/// Places the tensors of one layer end to end in a block of memory.
class Packing {
 public:
  explicit Packing(const std::vector<at::Tensor*>& tensors);

  int64_t bytes() const { return bytes_; }
  /// Views tensor `index` of the list in uint8 `memory` of at least bytes().
  at::Tensor view(const at::Tensor& memory, size_t index) const;

 private:
  struct TensorSlot {
    int64_t offset, bytes;
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
  };

  std::vector<TensorSlot> places_;
  int64_t bytes_ = 0;
};

/// Two buffers on the GPU, each as large as the largest layer. While one layer computes, the next one is copied on a
/// separate stream.
class HostLayers final : public LayerWeights {
 public:
  explicit HostLayers(at::Device device);
  ~HostLayers() override;
  HostLayers(const HostLayers&) = delete;
  HostLayers& operator=(const HostLayers&) = delete;

  /// Moves the next layer's tensors from the GPU into page-locked memory and leaves them undefined.
  void take(const Slots& slots);
  void visit(size_t layer) override;

 private:
  struct Layer {
    std::vector<at::Tensor*> tensors;
    Packing packing;
    std::vector<at::Tensor> host;  // page-locked chunks, in order
  };
  struct Buffer {
    at::Tensor memory;
    c10::Event copied;
    size_t layer = 0;
    bool filled = false;
  };

  static bool holds(const Buffer& buffer, size_t layer) { return buffer.filled && buffer.layer == layer; }
  void reserve(Buffer& buffer) const;
  void copy(size_t layer, Buffer& buffer);

  at::Device device_;
  c10::Stream side_;
  c10::Event reached_;  // the current stream has finished all earlier uses of the buffers
  std::vector<Layer> layers_;
  int64_t bytes_ = 0;  // bytes of the largest layer
  std::array<Buffer, 2> buffers_;
  size_t last_ = 1;  // the buffer that was visited last
};

}  // namespace sparsereel::models
