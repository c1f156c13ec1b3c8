// The orders in which the video tokens of a T x H x W grid can be arranged for attention. Each order of a grid is
// computed once and then cached.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sparsereel::hilbert {

/// A grid of video tokens. A token's native index is (t * height + h) * width + w.
struct Grid {
  int64_t frames = 0;  // T, latent frames after patching
  int64_t height = 0;  // H, patches
  int64_t width = 0;   // W, patches

  int64_t size() const { return frames * height * width; }
  bool operator==(const Grid&) const = default;
};

/// The orders. hilbert: generalized 3D Hilbert curve over axes (w, h, t). native: w fastest, then h, then t.
/// time_major: t fastest, then w, then h. morton: Z-order. random: a fixed shuffle.
enum class TokenOrder { hilbert, native, time_major, morton, random };

/// name() returns the name that the command line uses ("time-major"). parse_token_order() reads these names; for any
/// other text it throws an Error that lists the names.
std::string_view name(TokenOrder order);
TokenOrder parse_token_order(std::string_view text);

/// A permutation of a grid's tokens: order[i] is the native index of the token at position i of the sequence, and
/// inverse[native] = i.
struct Permutation {
  std::vector<int64_t> order;
  std::vector<int64_t> inverse;
};

/// Returns the permutation of a grid, computed once per (order, grid) and kept until the process ends. Thread-safe.
/// Throws Error if a side is below 1 or the grid holds more than 2^31 - 1 tokens.
const Permutation& permutation(TokenOrder order, const Grid& grid);

struct Locality {
  int64_t non_unit_steps = 0;  // number of pairs of consecutive tokens whose Manhattan distance in the grid is above 1
  double mean_bounding_box = 0;  // mean bounding-box volume of blocks of consecutive tokens, in tokens
};

/// Returns the locality of an order. block_tokens: number of tokens in a block.
Locality locality(const Permutation& permutation, const Grid& grid, int64_t block_tokens = 128);

}  // namespace sparsereel::hilbert
