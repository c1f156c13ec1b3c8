// Computes noise levels on a line, then on a parabola that continues the line with the same slope and ends at 0.
#include "models/samplers/linear_quadratic.h"

namespace sparsereel::models {

std::vector<double> linear_quadratic_sigmas(int64_t steps, double threshold) {
  if (steps == 1) return {1};
  const int64_t linear = steps / 2;
  const auto all = static_cast<double>(steps), line = static_cast<double>(linear), rest = all - line;
  const double slope = threshold / line, bend = (line - threshold * all) / (line * rest * rest);
  std::vector<double> sigmas;
  for (int64_t i = 0; i < steps; ++i) {
    const auto step = static_cast<double>(i), past = step - line;
    sigmas.push_back(1 - slope * step - (past > 0 ? bend * past * past : 0));
  }
  return sigmas;
}

}  // namespace sparsereel::models
