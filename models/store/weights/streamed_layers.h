// Runs layers of which some stay in host memory or in their file, and are copied to a GPU when it is their turn.
#pragma once

#include <vector>

#include "models/store/weights/layer_weights.h"

namespace sparsereel::models {

enum class LayerPlace { device, pinned, pageable, file };

/// Returns the place of each layer. Layers of each place are spread evenly. The first layer stays on the device unless
/// all layers leave it, because some steps of a step cache run only this layer.
std::vector<LayerPlace> layer_places(size_t layers, const Streaming& streaming);

}  // namespace sparsereel::models
