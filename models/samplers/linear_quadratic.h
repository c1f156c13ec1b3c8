// A schedule of noise levels that families of flow matching may bring as their own (SamplerSpec::sigmas). No torch.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// Falling from 1, one a step: in the first half of the steps evenly down to 1 - threshold, in the others along a
/// parabola that goes on with the same slope and would end at 0. As the pipelines of models that were trained for it
/// have it (linear_quadratic_schedule). steps >= 1.
std::vector<double> linear_quadratic_sigmas(int64_t steps, double threshold);

}  // namespace sparsereel::models
