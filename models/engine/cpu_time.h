// Estimates how long a CPU takes for a video, to warn users who would wait for hours.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

struct Plan;

/// Returns the floating-point operations of one step. `parameters` is the number of the transformer's weights. `share`
/// is the share of attention that is computed; 1 is full attention.
double step_operations(const Plan& plan, const ModelSpec& spec, double parameters, double share = 1);

/// Returns a warning if `operations` take this CPU longer than half an hour, or else an empty string. The warning
/// begins with `what`: "the 50 steps of a video will take about 31 hours on this CPU (...): use a GPU". Measures this
/// CPU for a fraction of a second, once for each dtype and number of threads. Does not measure if even the slowest CPUs
/// would take less than half an hour.
std::string slow_warning(const std::string& what, double operations, c10::ScalarType dtype);

}  // namespace sparsereel::models
