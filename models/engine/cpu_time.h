// How long a CPU takes, roughly, for those who start on one what is meant for a GPU.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

struct Plan;

/// Floating-point operations of one denoising step with full attention. `parameters`: the transformer's.
double step_operations(const Plan& plan, const ModelSpec& spec, double parameters);

/// That `what`, of so many operations, takes this CPU longer than half an hour: "50 steps take about 31 hours on this
/// CPU (...)"; empty where it does not. Measures the CPU where there is a doubt, for a fraction of a second, once for
/// each dtype and number of threads.
std::string slow_warning(const std::string& what, double operations, c10::ScalarType dtype);

}  // namespace sparsereel::models
