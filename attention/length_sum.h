// The mean length of a call's outputs, relative to which Selection::block_error measures errors. Lengths are summed
// exactly, as integers, so the mean does not depend on the order or the number of ranks. No torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention/host_device.h"

namespace sparsereel::attention {

/// The mean length of a head is taken over every kLengthTiles-th tile, starting at the first. Predicting the length of
/// all tiles would take too long, because each prediction reads the means of all blocks of V.
constexpr int kLengthTiles = 8;

/// Added to a predicted error before its logarithm is taken, so that blocks without error are ranked by their masses.
constexpr double kLeastError = 1e-30;

/// A sum of lengths. All members are 64-bit integers, so that ranks can add them one by one.
struct LengthSum {
  static constexpr int kBins = 32;
  static constexpr int kExponents = 8;  // exponents per bin

  /// bin_of() returns the bin of a length; units_of() returns its shifted mantissa, which is added to that bin. `bits`
  /// are the bits of a finite float of at least 0.
  SPARSEREEL_HOST_DEVICE static constexpr int bin_of(uint32_t bits) { return exponent_of(bits) / kExponents; }
  SPARSEREEL_HOST_DEVICE static constexpr uint64_t units_of(uint32_t bits) {
    const uint32_t mantissa = (bits & 0x7FFFFFU) | (bits >> 23 == 0 ? 0U : 0x800000U);
    return static_cast<uint64_t>(mantissa) << exponent_of(bits) % kExponents;
  }
  /// Returns log2 of a bin's unit.
  SPARSEREEL_HOST_DEVICE static constexpr int unit_of(int bin) { return kExponents * bin - 149; }

  /// Adds a length. Ignores lengths that are not finite, which come from broken values.
  void add(float length) {
    if (!std::isfinite(length)) return;
    uint32_t bits = 0;  // GPU sources have no bit_cast
    std::memcpy(&bits, &length, sizeof(bits));
    bins[bin_of(bits)] += units_of(bits);
    ++lengths;
  }
  /// Returns the mean length; NaN if there are none.
  double mean() const {
    double sum = 0;
    for (int bin = 0; bin < kBins; ++bin) sum += std::ldexp(static_cast<double>(bins[bin]), unit_of(bin));
    return sum / static_cast<double>(lengths);
  }

  uint64_t bins[kBins]{};  // sum of each bin in its unit; 2^33 lengths fit
  uint64_t lengths = 0;

 private:
  /// Returns the e for which the number is its mantissa, as an integer, times 2^(e - 149).
  SPARSEREEL_HOST_DEVICE static constexpr int exponent_of(uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 23);
    return exponent > 0 ? exponent - 1 : 0;
  }
};

}  // namespace sparsereel::attention
