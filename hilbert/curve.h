// A generalized 3D Hilbert curve, for boxes of any size.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace sparsereel::hilbert {

using Cell = std::array<int64_t, 3>;  // x, y, z

/// Returns every cell of a width x height x depth box once, in the order of J. Cerveny's generalized Hilbert curve
/// ("gilbert", github.com/jakubcerveny/gilbert). The curve starts at (0, 0, 0) and runs along the longest axis; of
/// equally long axes, along the first of x, y, z. Consecutive cells are neighbors, except for a few diagonal steps that
/// odd sides make unavoidable. Every side must be at least 1.
std::vector<Cell> gilbert_curve(int64_t width, int64_t height, int64_t depth);

}  // namespace sparsereel::hilbert
