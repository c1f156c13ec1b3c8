// A schedule of noise levels that families of flow matching may use (SamplerSpec::sigmas). No torch.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// Returns falling noise levels from 1, one for each step. The first half of the steps falls evenly to 1 - threshold.
/// The other half follows a parabola that continues with the same slope and would end at 0. This is
/// linear_quadratic_schedule of the pipelines of models trained for it. steps >= 1.
std::vector<double> linear_quadratic_sigmas(int64_t steps, double threshold);

}  // namespace sparsereel::models
