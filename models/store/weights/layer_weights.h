// The weights of layers that run one after the other, repeatedly. A layer's weights stay on the device, are copied from
// host memory before their turn, or are read from the file.
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

/// Returns the tensors of the slots, with the scales of 8-bit tensors and the weight deltas of packed tensors.
std::vector<at::Tensor*> tensors_of(const Slots& slots);

/// Collects the tensors that `list` visits. A slot points to its tensor, so the tensors must not move afterwards.
Slots slots_of(const std::function<void(const Visit&)>& list);

/// Returns the bytes of the slots' tensors after this reader has loaded them.
uint64_t bytes_of(const Slots& slots, const WeightReader& reader);
/// Returns true if any of the weights is rounded a second time (WeightReader::rounds_again()).
bool rounds_again(const Slots& slots, const WeightReader& reader);

/// Makes the weights of a layer available when the layer runs.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  /// Fills the layer's tensors with its weights. They are valid for work that is enqueued on the current stream before
  /// the next call. Visit layers in order: any other order gives correct results but waits for copies. Repeated visits
  /// of the first layer do not wait.
  virtual void visit(size_t layer) = 0;
  /// Frees the layer that the last visit has read from the file. Has no effect on layers that stay in memory.
  virtual void release() {}
};

enum class Residence {
  device,  // all layers stay on the device
  host,    // all layers stay in page-locked host memory; a GPU has copies of two of them, the current and the next
  file,    // each visit reads one layer from the file, for modules that run once
};

/// How many layers do not stay on the device. These layers are spread evenly over all layers, so that they are copied
/// while the layers that stay compute. On a CPU, all layers stay.
struct Streaming {
  int64_t layers = 0;    // layers that do not stay on the device
  int64_t pageable = 0;  // how many of `layers` are in host memory that is not page-locked, which is slower
  /// How many of `layers` are read from the file at each visit. If any are, the component must outlive the weights.
  int64_t from_file = 0;

  static Streaming all() { return {.layers = std::numeric_limits<int64_t>::max()}; }
};

/// Loads layers, which may differ in shapes and dtypes. The caller must then call the reader's check_complete().
std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          const Streaming& streaming);
/// Does the same. With Residence::file, visit() itself calls the reader's check_complete() after it has read the last
/// layer.
std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence);

/// Places the tensors of one layer end to end in a block of memory.
class Packing {
 public:
  explicit Packing(const std::vector<at::Tensor*>& tensors);

  int64_t bytes() const { return bytes_; }
  /// Returns a view of `memory` as tensor `index` of the list. `memory` is uint8 and has at least bytes() elements.
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
