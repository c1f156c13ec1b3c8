// bench_token_order [WIDTH HEIGHT FRAMES]: prints the locality of the token orders on a grid of video tokens. Its
// Markdown table shows how many steps of an order lead to a token that is not a neighbor in the grid, and the mean
// bounding box of blocks of 64 and 128 tokens. Default: the grids of the supported models.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "hilbert/token_order.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel::hilbert;

void print(const Grid& grid) {
  for (const TokenOrder order :
       {TokenOrder::hilbert, TokenOrder::morton, TokenOrder::native, TokenOrder::time_major, TokenOrder::random}) {
    const Permutation& p = permutation(order, grid);
    const Locality small = locality(p, grid, 64), large = locality(p, grid, 128);
    std::printf("| %lldx%lldx%lld | %s | %lld | %.0f | %.0f |\n", static_cast<long long>(grid.width),
                static_cast<long long>(grid.height), static_cast<long long>(grid.frames),
                std::string(name(order)).c_str(), static_cast<long long>(large.non_unit_steps), small.mean_bounding_box,
                large.mean_bounding_box);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Grid> grids{{.frames = 9, .height = 16, .width = 16},  {.frames = 13, .height = 30, .width = 45},
                          {.frames = 28, .height = 30, .width = 53}, {.frames = 21, .height = 30, .width = 52},
                          {.frames = 21, .height = 45, .width = 80}, {.frames = 31, .height = 22, .width = 40}};
  if (argc == 4) {
    grids = {{.frames = std::atoll(argv[3]), .height = std::atoll(argv[2]), .width = std::atoll(argv[1])}};
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: %s [WIDTH HEIGHT FRAMES]\n", argv[0]);
    return 2;
  }
  return sparsereel::bench::guarded([&] {
    std::printf(
        "| grid w x h x t | order | non-unit steps | mean box of 64 tokens | mean box of 128 tokens "
        "|\n|---|---|---|---|---|\n");
    for (const Grid& grid : grids) print(grid);
    return 0;
  });
}
