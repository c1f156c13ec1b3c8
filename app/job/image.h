// The pictures that a video begins and ends with, from their files to the model.
#pragma once

#include "models/engine/pipeline.h"

namespace sparsereel::app {

/// Reads and encodes the plan's images, where it has any. Throws Error naming the file.
void add_images(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline);

}  // namespace sparsereel::app
