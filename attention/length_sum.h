// The mean length of the outputs of a call, which Selection::block_error measures errors by. Lengths are summed
// exactly, as integers, so that the mean is the same in any order and on any number of ranks. No torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention/host_device.h"

namespace sparsereel::attention {

/// The mean is over every so many tiles of a head, from the first on: a prediction reads all means of V.
constexpr int kLengthTiles = 8;

constexpr double kLeastError =
    1e-30;  // added before logarithms: keeps blocks without any error in order of their masses

/// All 64-bit numbers, so that ranks add them up as such.
struct LengthSum {
  static constexpr int kBins = 32;
  static constexpr int kExponents = 8;  // of a bin

  /// A length's bin, and what it adds there: its mantissa, shifted. bits: of a finite float of at least 0.
  SPARSEREEL_HOST_DEVICE static constexpr int bin_of(uint32_t bits) { return exponent_of(bits) / kExponents; }
  SPARSEREEL_HOST_DEVICE static constexpr uint64_t units_of(uint32_t bits) {
    const uint32_t mantissa = (bits & 0x7FFFFFU) | (bits >> 23 == 0 ? 0U : 0x800000U);
    return static_cast<uint64_t>(mantissa) << exponent_of(bits) % kExponents;
  }
  /// log2 of a bin's unit.
  SPARSEREEL_HOST_DEVICE static constexpr int unit_of(int bin) { return kExponents * bin - 149; }

  /// What is not finite, as a broken value makes it, does not count.
  void add(float length) {
    if (!std::isfinite(length)) return;
    uint32_t bits = 0;  // a GPU's sources have no bit_cast
    std::memcpy(&bits, &length, sizeof(bits));
    bins[bin_of(bits)] += units_of(bits);
    ++lengths;
  }
  /// NaN without any.
  double mean() const {
    double sum = 0;
    for (int bin = 0; bin < kBins; ++bin) sum += std::ldexp(static_cast<double>(bins[bin]), unit_of(bin));
    return sum / static_cast<double>(lengths);
  }

  uint64_t bins[kBins]{};  // of each, in its unit: 2^33 lengths fit
  uint64_t lengths = 0;

 private:
  /// Above that of the least number.
  SPARSEREEL_HOST_DEVICE static constexpr int exponent_of(uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 23);
    return exponent > 0 ? exponent - 1 : 0;
  }
};

}  // namespace sparsereel::attention
