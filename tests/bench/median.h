// How long a call takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "app/lab/measure/timing.h"

namespace sparsereel::bench {

/// Milliseconds, the median of `repetitions` calls behind one that does not count.
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
