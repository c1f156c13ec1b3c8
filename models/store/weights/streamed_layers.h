// Layers of which some wait in the host's memory or in their file, and pass through a GPU in turn.
#pragma once

#include <vector>

#include "models/store/weights/layer_weights.h"

namespace sparsereel::models {

enum class LayerPlace { device, pinned, pageable, file };

/// Returns the place of each layer. Layers of each place are spread evenly, and the first layer is the last to leave
/// the device, because a step cache runs it alone.
std::vector<LayerPlace> layer_places(size_t layers, const Streaming& streaming);

}  // namespace sparsereel::models
