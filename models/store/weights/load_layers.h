// Loads the layers of a module, and decides where they are kept between uses.
#pragma once

#include <memory>
#include <vector>

#include "models/store/weights/layer_weights.h"
#include "models/store/weights/weights.h"

namespace sparsereel::models {

enum class Residence {
  device,  // all layers stay on the device
  host,    // in page-locked memory; a GPU holds two layers: one computes while the other is copied
  file,    // one layer at a time is read for each visit, for modules that run once
};

/// Loads layers, which may differ in shapes and dtypes. The caller then runs the reader's check_complete(). For `file`
/// it runs here, each time the last layer was read.
std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence);

}  // namespace sparsereel::models
