// Measures the median time of a call.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "app/lab/measure/timing.h"

namespace sparsereel::bench {

/// Returns the median time of `repetitions` calls in milliseconds, after one call that warms up.
inline double median_ms(const std::function<void()>& call, int64_t repetitions, at::Device device) {
  app::Timer timer(device);
  std::vector<double> times;
  for (int64_t i = 0; i <= repetitions; ++i) {
    timer.time(call);
    const double ms = timer.finish()[0];
    if (i > 0) times.push_back(ms);
  }
  return app::spread(times).median;
}

}  // namespace sparsereel::bench
