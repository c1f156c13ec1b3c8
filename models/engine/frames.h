// What is wrong with a finished video that no error shows.
#pragma once

#include <string>

#include "models/engine/pipeline.h"

namespace sparsereel::models {

/// Throws Error where the frames, as in Outcome and decoded in `dtype`, hold NaN.
void check_numbers(const at::Tensor& frames, at::ScalarType dtype);

/// frames as in Outcome. "is black" (no value reaches 2/255); empty where nothing is wrong.
std::string defect(const at::Tensor& frames);

/// What to do about NaN and Inf in a run of this dtype.
std::string nan_remedy(at::ScalarType dtype);

/// That the decoder will make another number of frames than is asked for; empty where it will not.
std::string frame_count_warning(const Plan& plan);

}  // namespace sparsereel::models
