// Builds the generalized Hilbert curve recursively. A box is cut into two, three or five smaller boxes. The walk enters
// each of them next to the cell where it left the previous one.
#include "hilbert/curve.h"

#include <cstdlib>

namespace sparsereel::hilbert {
namespace {

/// An edge of a box: a signed vector along one axis.
struct Edge : Cell {
  int64_t length() const { return std::abs((*this)[0] + (*this)[1] + (*this)[2]); }
};

Edge operator+(const Edge& a, const Edge& b) {
  return {{a[0] + b[0], a[1] + b[1], a[2] + b[2]}};
}
Edge operator-(const Edge& a, const Edge& b) {
  return {{a[0] - b[0], a[1] - b[1], a[2] - b[2]}};
}
Edge operator-(const Edge& a) {
  return {{-a[0], -a[1], -a[2]}};
}

Edge unit(const Edge& edge) {
  const auto sign = [](int64_t x) { return static_cast<int64_t>(x > 0) - static_cast<int64_t>(x < 0); };
  return {{sign(edge[0]), sign(edge[1]), sign(edge[2])}};
}

/// Returns about half of an edge. The length is even if possible, because an odd side costs a diagonal step. The
/// division rounds down, not toward zero: with other rounding the curve also visits every cell, but makes more jumps.
Edge half(const Edge& edge) {
  const auto floor_half = [](int64_t x) { return x >> 1; };
  const Edge result{{floor_half(edge[0]), floor_half(edge[1]), floor_half(edge[2])}};
  return result.length() % 2 != 0 && edge.length() > 2 ? result + unit(edge) : result;
}

class Walk {
 public:
  explicit Walk(std::vector<Cell>& cells) : cells_(cells) {}

  /// Visits every cell of the box with the edges a, b and c. The walk starts at the corner `at` and ends at the far end
  /// of a.
  void box(const Edge& at, const Edge& a, const Edge& b, const Edge& c) {
    const int64_t w = a.length(), h = b.length(), d = c.length();
    if (w == 0 || h == 0 || d == 0) return;
    if (h == 1 && d == 1) return line(at, unit(a), w);
    if (w == 1 && d == 1) return line(at, unit(b), h);
    if (w == 1 && h == 1) return line(at, unit(c), d);
    if (2 * w > 3 * h && 2 * w > 3 * d) return halves(at, a, b, c);
    if (3 * h > 4 * d) return around_b(at, a, b, c);
    if (3 * d > 4 * h) return around_c(at, a, b, c);
    return fifths(at, a, b, c);
  }

 private:
  void line(Edge at, const Edge& step, int64_t length) {
    for (int64_t i = 0; i < length; ++i, at = at + step) cells_.push_back(at);
  }

  /// Walks a box whose edge a is much longer than the others: first along one half of a, then along the other half.
  void halves(const Edge& at, const Edge& a, const Edge& b, const Edge& c) {
    const Edge a2 = half(a);
    box(at, a2, b, c);
    box(at + a2, a - a2, b, c);
  }

  /// Walks a box whose edge b is longer than its edge c. There are three parts: up the first half of b, along a through
  /// the second half of b, and down the first half of b at the far end of a.
  void around_b(const Edge& at, const Edge& a, const Edge& b, const Edge& c) {
    const Edge a2 = half(a), b2 = half(b), end_a = at + a - unit(a);
    box(at, b2, c, a2);
    box(at + b2, a, b - b2, c);
    box(end_a + b2 - unit(b), -b2, c, a2 - a);
  }

  /// Does the same as around_b() for a box whose edge c is longer than its edge b.
  void around_c(const Edge& at, const Edge& a, const Edge& b, const Edge& c) {
    const Edge a2 = half(a), c2 = half(c), end_a = at + a - unit(a);
    box(at, c2, a2, b);
    box(at + c2, a, b, c - c2);
    box(end_a + c2 - unit(c), -c2, a2 - a, b);
  }

  /// Walks a box with edges of similar lengths in five parts, in the order of the eight octants of Hilbert's cube.
  /// Three of the parts consist of two octants.
  void fifths(const Edge& at, const Edge& a, const Edge& b, const Edge& c) {
    const Edge a2 = half(a), b2 = half(b), c2 = half(c);
    const Edge end_a = at + a - unit(a), end_c = c - unit(c);
    box(at, b2, c2, a2);
    box(at + b2, c, a2, b - b2);
    box(at + b2 - unit(b) + end_c, a, -b2, c2 - c);
    box(end_a + b2 + end_c, -c, a2 - a, b - b2);
    box(end_a + b2 - unit(b), -b2, c2, a2 - a);
  }

  std::vector<Cell>& cells_;
};

}  // namespace

std::vector<Cell> gilbert_curve(int64_t width, int64_t height, int64_t depth) {
  std::vector<Cell> cells;
  cells.reserve(static_cast<size_t>(width * height * depth));
  const Edge x{{width, 0, 0}}, y{{0, height, 0}}, z{{0, 0, depth}}, origin{};
  Walk walk(cells);
  if (width >= height && width >= depth) {
    walk.box(origin, x, y, z);
  } else if (height >= width && height >= depth) {
    walk.box(origin, y, x, z);
  } else {
    walk.box(origin, z, x, y);
  }
  return cells;
}

}  // namespace sparsereel::hilbert
