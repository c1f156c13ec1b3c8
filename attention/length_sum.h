// The mean length of a call's output vectors; Selection::block_error measures errors relative to this mean. Lengths are
// summed exactly, as integers, so the mean does not depend on the order of additions or on the number of ranks. No
// torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention/host_device.h"

namespace sparsereel::attention {

/// The mean length of a head is taken over every kLengthTiles-th tile, starting with the first. Predicting the lengths
/// of all tiles would take too long, because each prediction reads the means of all blocks of V.
constexpr int kLengthTiles = 8;

/// Added to the ratio of a block's predicted error to its mass before the logarithm is taken, so that blocks without an
/// error are ranked by their masses.
constexpr double kLeastError = 1e-30;

/// A sum of lengths, which are floats. Each of the bins is for lengths with eight neighboring exponents, and sums their
/// mantissas as integers. All members are 64-bit integers, so that ranks can add them one by one.
struct LengthSum {
  static constexpr int kBins = 32;
  static constexpr int kExponents = 8;  // exponents per bin

  /// bin_of() returns the bin of a length. units_of() returns the integer to add to that bin: the mantissa, shifted
  /// left by the exponent's place within the bin. `bits` are the bits of a finite float of at least 0.
  SPARSEREEL_HOST_DEVICE static constexpr int bin_of(uint32_t bits) { return exponent_of(bits) / kExponents; }
  SPARSEREEL_HOST_DEVICE static constexpr uint64_t units_of(uint32_t bits) {
    const uint32_t mantissa = (bits & 0x7FFFFFU) | (bits >> 23 == 0 ? 0U : 0x800000U);
    return static_cast<uint64_t>(mantissa) << exponent_of(bits) % kExponents;
  }
  /// Returns log2 of the length for which a 1 in the bin stands.
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

  uint64_t bins[kBins]{};  // bins[b] is in units of 2^unit_of(b); it cannot overflow with up to 2^33 lengths
  uint64_t lengths = 0;    // number of lengths

 private:
  /// Returns e such that the number is its mantissa, read as an integer, times 2^(e - 149).
  SPARSEREEL_HOST_DEVICE static constexpr int exponent_of(uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 23);
    return exponent > 0 ? exponent - 1 : 0;
  }
};

}  // namespace sparsereel::attention
