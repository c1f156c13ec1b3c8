// Quantiles; see spread.h.
#include "app/measure/spread.h"

#include <algorithm>
#include <cmath>

namespace sparsereel::app {
namespace {

double quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - std::floor(position));
}

}  // namespace

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.median = quantile(values, 0.5),
          .lower_quartile = quantile(values, 0.25),
          .upper_quartile = quantile(values, 0.75),
          .least = values.front(),
          .most = values.back()};
}

}  // namespace sparsereel::app
