// Builds the permutation of a token grid for each order, caches it, and measures its locality.
#include "hilbert/token_order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "hilbert/curve.h"
#include "hilbert/error.h"

namespace sparsereel::hilbert {
namespace {

constexpr std::array<std::pair<TokenOrder, std::string_view>, 5> kNames{{
    {TokenOrder::hilbert, "hilbert"},
    {TokenOrder::native, "native"},
    {TokenOrder::time_major, "time-major"},
    {TokenOrder::morton, "morton"},
    {TokenOrder::random, "random"},
}};

constexpr uint64_t kShuffleSeed = 20240917;

int64_t native_index(const Grid& grid, int64_t t, int64_t h, int64_t w) {
  return (t * grid.height + h) * grid.width + w;
}

/// Returns (w, h, t) of a native index.
Cell cell_of(const Grid& grid, int64_t native) {
  return {native % grid.width, native / grid.width % grid.height, native / (grid.width * grid.height)};
}

std::vector<int64_t> native_order(const Grid& grid) {
  std::vector<int64_t> order(static_cast<size_t>(grid.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> hilbert_order(const Grid& grid) {
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(grid.size()));
  for (const auto& [w, h, t] : gilbert_curve(grid.width, grid.height, grid.frames))
    order.push_back(native_index(grid, t, h, w));
  return order;
}

std::vector<int64_t> time_major_order(const Grid& grid) {
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(grid.size()));
  for (int64_t h = 0; h < grid.height; ++h)
    for (int64_t w = 0; w < grid.width; ++w)
      for (int64_t t = 0; t < grid.frames; ++t) order.push_back(native_index(grid, t, h, w));
  return order;
}

/// Returns true if a precedes b in Morton order, which compares the interleaved bits of the coordinates (w lowest, then
/// h, then t). The axis in which a and b differ in the highest bit decides; if several axes differ in that bit, the
/// last of them decides. This uses T. Chan's test, where msb is the highest set bit: msb(x) < msb(y) if and only if x <
/// y and x < (x ^ y).
bool morton_less(const Cell& a, const Cell& b) {
  size_t axis = 2;
  int64_t difference = a[2] ^ b[2];
  for (const size_t other : {size_t{1}, size_t{0}}) {
    const int64_t d = a[other] ^ b[other];
    if (difference < d && difference < (difference ^ d)) {
      axis = other;
      difference = d;
    }
  }
  return a[axis] < b[axis];
}

std::vector<int64_t> morton_order(const Grid& grid) {
  std::vector<int64_t> order = native_order(grid);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return morton_less(cell_of(grid, a), cell_of(grid, b)); });
  return order;
}

/// Shuffles by Fisher-Yates with a generator that the C++ standard specifies exactly. std::shuffle could give another
/// order with another standard library.
std::vector<int64_t> random_order(const Grid& grid) {
  std::vector<int64_t> order = native_order(grid);
  std::mt19937_64 generator(kShuffleSeed);
  for (uint64_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[generator() % (i + 1)]);
  return order;
}

std::vector<int64_t> make_order(TokenOrder order, const Grid& grid) {
  switch (order) {
    case TokenOrder::hilbert:
      return hilbert_order(grid);
    case TokenOrder::native:
      return native_order(grid);
    case TokenOrder::time_major:
      return time_major_order(grid);
    case TokenOrder::morton:
      return morton_order(grid);
    case TokenOrder::random:
      return random_order(grid);
  }
  throw bad_input("token order " + std::to_string(static_cast<int>(order)) + " does not exist",
                  "use a value of TokenOrder");
}

void check(const Grid& grid) {
  const std::string size = std::to_string(grid.frames) + " x " + std::to_string(grid.height) + " x " +
                           std::to_string(grid.width) + " (frames x height x width)";
  if (grid.frames < 1 || grid.height < 1 || grid.width < 1)
    throw bad_input("token grid " + size + " has an empty side", "give every side at least one token");
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  if (grid.frames > limit / grid.height || grid.frames * grid.height > limit / grid.width)
    throw bad_input("token grid " + size + " holds more than 2^31 - 1 tokens", "ask for a smaller or shorter video");
}

Permutation make_permutation(TokenOrder order, const Grid& grid) {
  Permutation result{.order = make_order(order, grid), .inverse = {}};
  result.inverse.resize(result.order.size());
  for (size_t i = 0; i < result.order.size(); ++i)
    result.inverse[static_cast<size_t>(result.order[i])] = static_cast<int64_t>(i);
  return result;
}

int64_t bounding_box_volume(const Permutation& permutation, const Grid& grid, size_t begin, size_t end) {
  Cell low = cell_of(grid, permutation.order[begin]), high = low;
  for (size_t i = begin + 1; i < end; ++i) {
    const Cell cell = cell_of(grid, permutation.order[i]);
    for (size_t axis = 0; axis < 3; ++axis) {
      low[axis] = std::min(low[axis], cell[axis]);
      high[axis] = std::max(high[axis], cell[axis]);
    }
  }
  return (high[0] - low[0] + 1) * (high[1] - low[1] + 1) * (high[2] - low[2] + 1);
}

}  // namespace

std::string_view name(TokenOrder order) {
  for (const auto& [value, text] : kNames)
    if (value == order) return text;
  return "unknown";
}

TokenOrder parse_token_order(std::string_view text) {
  std::string known;
  for (const auto& [value, spelling] : kNames) {
    if (spelling == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(spelling);
  }
  throw bad_option("token_order", std::string(text) + ": one of " + known + " is needed", "use one of these");
}

const Permutation& permutation(TokenOrder order, const Grid& grid) {
  check(grid);
  static std::mutex mutex;
  static std::map<std::tuple<TokenOrder, int64_t, int64_t, int64_t>, Permutation> cache;
  const std::lock_guard lock(mutex);
  const auto key = std::make_tuple(order, grid.frames, grid.height, grid.width);
  const auto found = cache.find(key);
  if (found != cache.end()) return found->second;
  return cache.emplace(key, make_permutation(order, grid)).first->second;
}

Locality locality(const Permutation& permutation, const Grid& grid, int64_t block_tokens) {
  check(grid);
  const size_t size = permutation.order.size();
  if (static_cast<int64_t>(size) != grid.size())
    throw bad_input(
        "a permutation of " + std::to_string(size) + " tokens does not fit a grid of " + std::to_string(grid.size()),
        "pass the permutation that was made for this grid");
  if (block_tokens < 1)
    throw bad_input("block_tokens is " + std::to_string(block_tokens), "measure blocks of at least one token");
  Locality result;
  for (size_t i = 1; i < size; ++i) {
    const Cell a = cell_of(grid, permutation.order[i - 1]), b = cell_of(grid, permutation.order[i]);
    const int64_t distance = std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
    result.non_unit_steps += distance > 1 ? 1 : 0;
  }
  double volume = 0;
  int64_t blocks = 0;
  for (size_t begin = 0; begin < size; begin += static_cast<size_t>(block_tokens), ++blocks) {
    const size_t end = std::min(size, begin + static_cast<size_t>(block_tokens));
    volume += static_cast<double>(bounding_box_volume(permutation, grid, begin, end));
  }
  result.mean_bounding_box = volume / static_cast<double>(blocks);
  return result;
}

}  // namespace sparsereel::hilbert
