// Median and spread of repeated measurements. No torch.
#pragma once

#include <vector>

namespace sparsereel::app {

struct Spread {
  double median = 0;
  double lower_quartile = 0;
  double upper_quartile = 0;
  double least = 0;
  double most = 0;
};

/// Quantiles are interpolated linearly between neighbours. At least one value is needed.
Spread spread(std::vector<double> values);

}  // namespace sparsereel::app
