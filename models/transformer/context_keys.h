// Keeps the keys and values of a context that is the same in all steps and guidance passes, such as an image.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace sparsereel::models {

/// Keys and values, [B, L, heads, head_dim] each. If B is 1, all batch entries use them.
struct KeysAndValues {
  at::Tensor k, v;
};

/// Keys and values of one context, for the layers of one transformer. They are computed when a layer first runs,
/// because a streamed layer's weights are on the device only then (streamed_layers.h). They stay on the run's device.
/// This takes 5 MB per layer for 257 tokens of width 5120 in 16 bits; such a layer's weights take 700 MB.
class ContextKeys {
 public:
  /// Returns the layer's keys and values, computed by make() on the first call.
  const KeysAndValues& of(size_t layer, const std::function<KeysAndValues()>& make) {
    if (layers_.size() <= layer) layers_.resize(layer + 1);
    if (!layers_[layer].k.defined()) layers_[layer] = make();
    return layers_[layer];
  }
  /// Returns true if the keys and values of all layers are computed. Then the context itself is no longer needed.
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
