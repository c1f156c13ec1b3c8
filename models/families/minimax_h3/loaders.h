// Loads MiniMax-H3's transformer.
#pragma once

#include <memory>

#include "models/transformer/loaded_transformer.h"

namespace sparsereel::models {

/// Loads the transformer, whose predict() takes latents [1, C, F, H, W], sound, and perhaps keyframes. `offload` works
/// as in loaded_transformer(), and the component must outlive the transformer.
std::unique_ptr<LoadedTransformer> load_minimax_h3_transformer(const Component& component, at::Device device,
                                                               WeightFormat format, bool offload = false);

}  // namespace sparsereel::models
