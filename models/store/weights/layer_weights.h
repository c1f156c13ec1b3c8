// The weights of layers that run one after the other, repeatedly: they stay on the device, are copied from host memory
// in time, or are read from the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/weights.h"

namespace sparsereel::models {

/// A layer's tensor, and its description in a checkpoint.
struct Slot {
  at::Tensor* tensor;
  Parameter parameter;
};

/// The tensors of one layer, in the order in which the layer lists them.
using Slots = std::vector<Slot>;

/// Returns the tensors of the slots, including scales of 8-bit tensors and weight deltas of packed tensors.
std::vector<at::Tensor*> tensors_of(const Slots& slots);

/// Collects what `list` visits. The tensors must not move afterwards.
Slots slots_of(const std::function<void(const Visit&)>& list);

/// Returns the bytes of the tensors that this reader has loaded.
uint64_t bytes_of(const Slots& slots, const WeightReader& reader);
/// Returns true if any of the weights is rounded a second time (WeightReader::rounds_again()).
bool rounds_again(const Slots& slots, const WeightReader& reader);

/// Fetches the weights of layers when it is their turn.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  /// Fills the layer's tensors with its weights, for work that is enqueued on the current stream before the next call.
  /// Visit layers in order. Any other order is correct but waits, except repeated visits of the first layer.
  virtual void visit(size_t layer) = 0;
  /// Frees what the last visit has read. No effect for layers that stay in memory.
  virtual void release() {}
};

enum class Residence {
  device,  // all layers stay on the device
  host,    // layers stay in page-locked host memory; a GPU holds two layers: one computes while the other is copied
  file,    // each visit reads one layer from the file, for modules that run once
};

/// The number of layers that do not stay on the device. They are spread evenly over all layers, so that copies overlap
/// with the layers that stay. On a CPU all layers stay.
struct Streaming {
  int64_t layers = 0;    // layers that are copied to the device in turn
  int64_t pageable = 0;  // of these, layers in host memory that is not page-locked, which are copied more slowly
  int64_t from_file =
      0;  // of these, layers that each visit reads from the file; the component must outlive the weights

  static Streaming all() { return {.layers = std::numeric_limits<int64_t>::max()}; }
};

/// Loads layers, which may differ in shapes and dtypes. The caller then runs the reader's check_complete().
std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          const Streaming& streaming);
/// With Residence::file, visit() runs the reader's check_complete() each time it has read the last layer.
std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence);

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

}  // namespace sparsereel::models
