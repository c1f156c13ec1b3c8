// The picture that a video begins with, from its file to the model.
#pragma once

#include "models/engine/pipeline.h"

namespace sparsereel::app {

/// Reads and encodes the plan's image, where it has one. Throws Error naming the file.
void add_image(models::Conditioning& conditioning, const models::Plan& plan, const models::Pipeline& pipeline);

}  // namespace sparsereel::app
