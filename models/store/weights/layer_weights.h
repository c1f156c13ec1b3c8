// The weights of layers that run one after the other, over and over: where they wait, and how they come in time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/weights/weights.h"

namespace sparsereel::models {

/// A layer's tensor, and what it is in a checkpoint.
struct Slot {
  at::Tensor* tensor;
  Parameter parameter;
};

/// One layer's tensors, in the order of its list.
using Slots = std::vector<Slot>;

/// The tensors themselves, with the scales of those in 8 bits and what is added to those that are unpacked.
std::vector<at::Tensor*> tensors_of(const Slots& slots);

/// What `list` lists. The tensors must stay where they are.
Slots slots_of(const std::function<void(const Visit&)>& list);

/// What a module takes that is loaded by this reader.
uint64_t bytes_of(const Slots& slots, const WeightReader& reader);
/// Whether any of its weights is rounded a second time (WeightReader::rounds_again()).
bool rounds_again(const Slots& slots, const WeightReader& reader);

class LayerWeights {
 public:
  virtual ~LayerWeights() = default;
  /// Makes the layer's tensors its weights, for work that is enqueued on the current stream before the next call. Call
  /// it for the layers in turn: any other order is right, but waits, unless it is the first one over and over.
  virtual void visit(size_t layer) = 0;
};

}  // namespace sparsereel::models
