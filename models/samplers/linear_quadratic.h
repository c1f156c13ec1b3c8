// A schedule of noise levels for flow-matching models (SamplerSpec::sigmas). No torch.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// Returns one noise level for each of `steps` >= 1 steps, falling from 1. In the first half of the steps they fall
/// evenly to 1 - threshold. In the second half they lie on a parabola that continues with the same slope and would end
/// at 0. This is linear_quadratic_schedule in diffusers' pipelines of models that were trained for it.
std::vector<double> linear_quadratic_sigmas(int64_t steps, double threshold);

}  // namespace sparsereel::models
