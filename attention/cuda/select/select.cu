// Chooses the key blocks of each selection tile, from means of queries and keys. Blocks are ranked by mass (SpargeAttn,
// arXiv 2502.18137, section 3.2) or by the error of their means, by the rules of attention/cpu/selection.h.
// A CTA ranks all key blocks for 16 tiles. Then each of its warps chooses for one tile. The warp also writes the tile's
// list, if the list depends on nothing but the chosen blocks (Sizes::listed_tiles).
// Ranking by error starts from masses, which a warp computes for one tile while V is still being quantized. If tiles
// share a budget, all tiles are ranked and counted before any tile chooses. A bound on the error of each block
// (block_error) needs no counts, but only the output lengths of some tiles.
#include <algorithm>

#include "attention/cuda/device.h"
#include "attention/cuda/kernels.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/select/chooser.cuh"
#include "attention/cuda/select/masses.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 32 * kTiles;

template <int D>
constexpr int kResident = D == 256 ? 1 : 2;  // CTAs per multiprocessor

template <int D>
constexpr int kMassResident = D == 64 ? 3 : 2;  // CTAs per multiprocessor, which leave a thread 80 or 128 registers

template <int D>
__global__ void __launch_bounds__(32 * kMassTiles, kMassResident<D>)
    find_masses(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                const __grid_constant__ Buffers buffers) {
  FindMasses<D>(p, sizes, buffers).run();
}

template <int D>
__global__ void __launch_bounds__(32 * kLengthTiles)
    predict_outputs(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                    const __grid_constant__ Buffers buffers) {
  PredictOutputs<D>(p, sizes, buffers).run();
}

template <int D>
__global__ void __launch_bounds__(kThreads, kResident<D>)
    select_by_mass(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                   const __grid_constant__ Buffers buffers) {
  extern __shared__ uint32_t shared_keys[];
  SelectByMass<D>(p, sizes, buffers, shared_keys).run();
}

template <int D>
__global__ void __launch_bounds__(kThreads, kResident<D>)
    rank_by_error(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                  const __grid_constant__ Buffers buffers) {
  RankByError<D>(p, sizes, buffers).run();
}

/// Finds the bin in which a budget ends, and divides its candidates into finer bins. grid: parts of the work, budgets.
__global__ void __launch_bounds__(kThreads)
    find_sub_bin(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                 const __grid_constant__ Buffers buffers) {
  __shared__ BinCounts bins;
  const int heads = p.selection.heads == nullptr ? p.heads : 1, first_head = static_cast<int>(blockIdx.y) * heads;
  if (p.selection.heads != nullptr && p.selection.heads[first_head % p.heads].kind != HeadChoice::Kind::topk) return;
  Budget& budget = buffers.budgets[blockIdx.y];
  const BinPlace place = find_bin(budget.bins, budget.wanted);
  if (blockIdx.x == 0 && threadIdx.x == 0) budget.place = place;
  bins.clear();
  const int groups = ceil_div(sizes.selection_tiles, kTiles), lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(gridDim.x) * kTiles;
  for (int row = static_cast<int>(blockIdx.x) * kTiles + static_cast<int>(threadIdx.x) / 32;
       row < heads * sizes.selection_tiles; row += warps) {
    const int64_t tile =
        static_cast<int64_t>(first_head + row / sizes.selection_tiles) * groups * kTiles + row % sizes.selection_tiles;
    const uint32_t* keys = reinterpret_cast<const uint32_t*>(buffers.scores) + tile * sizes.selectable_keys;
#pragma unroll 4
    for (int block = lane; block < sizes.selectable_keys; block += 32) {
      const uint32_t key = keys[block], code = budget_code(key);
      if (key != 0 && code / kBins == static_cast<uint32_t>(place.bin)) atomicAdd(&bins.count[code % kBins], 1);
    }
  }
  bins.add_to(budget.sub_bins);
}

template <int D>
__global__ void __launch_bounds__(kThreads, kResident<D>)
    choose_by_error(const __grid_constant__ KernelParams p, const __grid_constant__ Sizes sizes,
                    const __grid_constant__ Buffers buffers) {
  ChooseByError<D>(p, sizes, buffers).run();
}

/// Returns the number of CTAs of find_sub_bin() for each budget. Together these are about two per multiprocessor, but
/// each budget has at least one, and no more than its rows can fill.
int parts_of_budget(const Sizes& sizes, int budgets) {
  const int places = 2 * multiprocessors();
  const int rows = sizes.batch_heads / budgets * sizes.selection_tiles;
  return std::max(1, std::min(places / budgets, ceil_div(rows, kTiles)));
}

/// Starts a kernel in which a CTA has `tiles` selection tiles, and one warp for each.
template <typename Function>
void run(const LaunchContext& context, Function* kernel, int bytes = 0, int tiles = kTiles) {
  const int groups = ceil_div(context.sizes.selection_tiles, kTiles) * (kTiles / tiles);
  context.start(kernel, static_cast<unsigned>(context.sizes.batch_heads) * groups, 32 * tiles, bytes);
}

/// Returns the counts of all budgets, for the sum over ranks. They are summed as 64-bit numbers that hold two counts
/// each. Sums of counts stay below 2^32, so no carry passes from one count to the other.
Numbers numbers_of(int budgets, uint32_t* first, int count) {
  return {reinterpret_cast<int64_t*>(first), count / 2, sizeof(Budget) / sizeof(int64_t), budgets};
}
Numbers numbers_of(int sums, LengthSum* first) {
  return {reinterpret_cast<int64_t*>(first), sums * static_cast<int>(sizeof(LengthSum) / sizeof(int64_t)), 0, 1};
}

template <int D>
void select(const LaunchContext& context, const AddUp& add_up) {
  if (!context.params.selection.by_error) {
    const int bytes = context.buffers.scores == nullptr
                          ? kTiles * context.sizes.selectable_keys * static_cast<int>(sizeof(uint32_t))
                          : 0;
    allow_shared_bytes(select_by_mass<D>, bytes);
    return run(context, select_by_mass<D>, bytes);
  }
  if (context.buffers.v_block_mean != nullptr) run(context, predict_outputs<D>, 0, kLengthTiles);
  if (const int sums = context.sizes.length_sums; add_up && sums > 0)
    add_up(numbers_of(sums, context.buffers.length_sums));
  run(context, rank_by_error<D>);
  if (const int budgets = context.sizes.budgets; budgets > 0) {
    const dim3 grid(static_cast<unsigned>(parts_of_budget(context.sizes, budgets)), static_cast<unsigned>(budgets));
    if (add_up) add_up(numbers_of(budgets, context.buffers.budgets->bins, kBins + 2));  // `wanted` follows the bins
    context.start(find_sub_bin, grid, kThreads);
    if (add_up) add_up(numbers_of(budgets, context.buffers.budgets->sub_bins, kBins));
  }
  run(context, choose_by_error<D>);
}

bool predicts(const LaunchContext& context) {
  return context.buffers.bitmap != nullptr && context.sizes.selection_tiles > 0;
}

}  // namespace

void launch_masses(const LaunchContext& context) {
  if (!predicts(context) || !context.params.selection.by_error) return;
  if (context.sizes.D == 64) run(context, find_masses<64>, 0, kMassTiles);
  if (context.sizes.D == 128) run(context, find_masses<128>, 0, kMassTiles);
  if (context.sizes.D == 256) run(context, find_masses<256>, 0, kMassTiles);
}

void launch_select(const LaunchContext& context, const AddUp& add_up) {
  if (!predicts(context)) return;
  if (context.sizes.D == 64) select<64>(context, add_up);
  if (context.sizes.D == 128) select<128>(context, add_up);
  if (context.sizes.D == 256) select<256>(context, add_up);
}

}  // namespace sparsereel::attention::cuda
