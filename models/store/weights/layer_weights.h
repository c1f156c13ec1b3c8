// The weights of layers that run one after the other, repeatedly, and may have to be fetched in time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
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
};

}  // namespace sparsereel::models
