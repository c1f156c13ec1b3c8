// Caches the keys and values of a context that all steps and guidance passes share, such as the image.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace sparsereel::models {

/// Keys and values, [B, L, heads, head_dim] each; with B = 1, all batch entries share them.
struct KeysAndValues {
  at::Tensor k, v;
};

/// Keys and values of one context, for the layers of one transformer. They are computed when a layer first runs,
/// because its weights are then on the device even if blocks stream. They stay on the run's device: 5 MB per layer for
/// 257 tokens of width 5120 in 16 bits, where that layer's weights take 700 MB.
class ContextKeys {
 public:
  /// Returns the layer's keys and values, computed by make() on the first call.
  const KeysAndValues& of(size_t layer, const std::function<KeysAndValues()>& make) {
    if (layers_.size() <= layer) layers_.resize(layer + 1);
    if (!layers_[layer].k.defined()) layers_[layer] = make();
    return layers_[layer];
  }
  /// Returns true if the keys and values of all layers are computed: the context itself is no longer needed then.
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
