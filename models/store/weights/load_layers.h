// Loads the layers of a module, and decides where they are kept between uses.
#pragma once

#include <memory>
#include <vector>

#include "models/store/weights/layer_weights.h"
#include "models/store/weights/weights.h"

namespace sparsereel::models {

enum class Residence {
  device,  // all layers stay on the device
  host,    // layers stay in page-locked host memory; a GPU holds two layers: one computes while the other is copied
  file,    // each visit reads one layer from the file, for modules that run once
};

/// Loads layers, which may differ in shapes and dtypes. The caller then runs the reader's check_complete(). With
/// Residence::file, visit() runs that check each time it has read the last layer.
std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence);

}  // namespace sparsereel::models
