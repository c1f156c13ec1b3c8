// Loads the layers of a module, and decides where they wait for their turn.
#pragma once

#include <memory>
#include <vector>

#include "models/store/weights/layer_weights.h"
#include "models/store/weights/weights.h"

namespace sparsereel::models {

enum class Residence {
  device,  // all layers, throughout
  host,    // in page-locked memory; a GPU holds two layers at a time, one of which computes while the other is copied
  file,    // one layer at a time, read anew for each visit: for what runs once and need not stay in memory
};

/// Layers may differ in their shapes and dtypes. What does not fit is for the reader's check_complete(), which runs
/// here for `file`, whenever the last layer was read.
std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence);

}  // namespace sparsereel::models
