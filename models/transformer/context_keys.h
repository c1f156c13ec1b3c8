// What the blocks of a transformer make of a context that is the same in every step and every pass of guidance.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace sparsereel::models {

/// [B, L, heads, head_dim] each; B = 1: of every batch entry.
struct KeysAndValues {
  at::Tensor k, v;
};

/// Those of one context by the layers of one transformer. A layer's are made where it first runs: then its weights are
/// at hand, also where blocks stream. They stay on the run's device, a layer's the size of 2 x L of its activations'
/// rows: 5 MB of 257 tokens at a width of 5120 in 16 bits, where that layer's weights take 700 MB.
class ContextKeys {
 public:
  /// make() where there are none yet.
  const KeysAndValues& of(size_t layer, const std::function<KeysAndValues()>& make) {
    if (layers_.size() <= layer) layers_.resize(layer + 1);
    if (!layers_[layer].k.defined()) layers_[layer] = make();
    return layers_[layer];
  }
  /// Whether there are those of so many layers: nobody asks for the context itself any more.
  bool complete(size_t layers) const {
    if (layers_.size() < layers) return false;
    for (const KeysAndValues& each : layers_)
      if (!each.k.defined()) return false;
    return true;
  }

 private:
  std::vector<KeysAndValues> layers_;
};

}  // namespace sparsereel::models
