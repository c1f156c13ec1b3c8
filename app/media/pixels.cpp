// Converts pixels and frame rates for the writers.
#include <cmath>
#include <numeric>

#include "app/media/writers.h"

namespace sparsereel::app {

std::vector<uint8_t> rgb8(std::span<const float> values) {
  std::vector<uint8_t> result(values.size());
  const float* const source = values.data();
  uint8_t* const target = result.data();
  const size_t count = result.size();
  for (size_t i = 0; i < count; ++i) {
    const float value = source[i] > 0 ? std::min(source[i], 1.0F) : 0.0F;  // NaN becomes 0
    // Without negative values this rounds like lround(), but it compiles to vector code.
    // NOLINTNEXTLINE(bugprone-incorrect-roundings)
    target[i] = static_cast<uint8_t>(static_cast<int>(value * 255.0F + 0.5F));
  }
  return result;
}

FrameRate frame_rate(double fps) {
  const double ntsc = fps * 1001 / 1000;
  if (std::abs(fps - std::round(fps)) > 1e-9 && std::abs(ntsc - std::round(ntsc)) < 1e-3)
    return {static_cast<int>(std::lround(ntsc)) * 1000, 1001};
  const int thousandths = static_cast<int>(std::lround(fps * 1000));
  const int divisor = std::gcd(thousandths, 1000);
  return {thousandths / divisor, 1000 / divisor};
}

}  // namespace sparsereel::app
