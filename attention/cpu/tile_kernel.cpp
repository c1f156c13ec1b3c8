// Lists the tile kernels that this machine can run, and chooses one.
#include "attention/cpu/tile_kernel.h"

#include <algorithm>
#include <vector>

#include "attention/call_policy.h"

namespace sparsereel::attention::cpu {

#ifdef SPARSEREEL_X86
namespace avx512 {
Counts run_tile(const Tile& tile);
}
namespace avx2 {
Counts run_tile(const Tile& tile);
}
#endif
namespace portable {
Counts run_tile(const Tile& tile);
}

std::span<const TileKernel> tile_kernels() {
  static const std::vector<TileKernel> kernels = [] {
    std::vector<TileKernel> found;
#ifdef SPARSEREEL_X86
    if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
        __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0)
      found.push_back({.name = "avx512", .run = avx512::run_tile});
    if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
      found.push_back({.name = "avx2", .run = avx2::run_tile});
#endif
    found.push_back({.name = "portable", .run = portable::run_tile});
    return found;
  }();
  return kernels;
}

const TileKernel& chosen_tile_kernel() {
  const std::span<const TileKernel> kernels = tile_kernels();
  const auto named = [](const TileKernel& kernel) { return kernel.name == forced_kernel(); };
  const auto found = std::find_if(kernels.begin(), kernels.end(), named);
  return found == kernels.end() ? kernels.front() : *found;
}

}  // namespace sparsereel::attention::cpu
