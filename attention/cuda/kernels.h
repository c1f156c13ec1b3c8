// The steps of a call, each a launch or two. Internal to attention/cuda. Errors surface through cudaGetLastError().
#pragma once

#include <functional>

#include "attention/cuda/scratch.h"

namespace sparsereel::attention::cuda {

struct LaunchContext {
  const KernelParams& params;
  const Sizes& sizes;
  const Buffers& buffers;
  Stream stream;
};

/// What the kernels want in another form than callers have it, made in the scratch memory: the choices of heads and the
/// rotary pairs. Returns the parameters with pointers to them.
KernelParams launch_inputs(const KernelParams& params, const Buffers& buffers, Stream stream);

void launch_moments(const MomentRows& rows, Stream stream);

/// apply_prologue() with the moments, if it needs any, as they are.
void launch_prologue(const PrologueRows& p, Stream stream);
/// Rows of q and k behind their prologue in the scratch memory, for Kernel::sixteen. Returns the parameters of those.
KernelParams launch_rows(const KernelParams& params, const Buffers& buffers, Stream stream);
/// Moments of a call's q and, behind them in `moments`, of its k, where its norm goes across heads; copies those
/// that are given.
void launch_moments(const KernelParams& params, float* moments, Stream stream);
/// Mean of K, what balances Q and K, and center and scale of V, from every stat_stride-th key and query_stride-th
/// query; resets the tile counter and the length classes.
void launch_statistics(const LaunchContext& context);
/// Records and scales; pooled means and similarities of Q and K where blocks are predicted.
void launch_quantize_queries(const LaunchContext& context);
void launch_quantize_keys(const LaunchContext& context);
void launch_quantize_values(const LaunchContext& context);
/// V as fp16 instead.
void launch_half_values(const LaunchContext& context);
/// Records of the means of 16 tokens, from those of K and V, where means stand for dropped blocks; and, where blocks
/// are ranked by error, the variances of K's blocks and the spreads of V's.
void launch_means_of_keys(const LaunchContext& context);
void launch_means_of_values(const LaunchContext& context, Kernel kernel);
/// Both kinds of means as 16-bit rows, from those of k and v, for Kernel::sixteen; and the spreads of V's blocks.
void launch_sixteen_means(const LaunchContext& context);
/// The masses of key blocks, where these are ranked by error: all of the selection that needs no V.
void launch_masses(const LaunchContext& context);
/// `times` rows of `count` numbers each, whose first ones lie `apart` numbers from each other.
struct Numbers {
  int64_t* first;
  int count, apart, times;
};
using AddUp = std::function<void(Numbers numbers)>;
/// Lists of the key blocks that the first listed_tiles keep, counted; bitmaps of the other selection tiles' choice.
/// add_up: where other parts of the heads choose with these, sums up what all of them count, in place and in the
/// stream. Else empty.
void launch_select(const LaunchContext& context, const AddUp& add_up);
/// Lists of key blocks for the other query tiles, counted.
void launch_lists(const LaunchContext& context, int tile_rows);
/// Attention over the lists. The Hopper kernel's shared tiles have launches of their own, beside the others.
void launch_hopper(const LaunchContext& context);
void launch_hopper_shared(const LaunchContext& context);
void launch_ampere(const LaunchContext& context);
void launch_ada(const LaunchContext& context);
void launch_sixteen_fp16(const LaunchContext& context);
void launch_sixteen_bf16(const LaunchContext& context);

}  // namespace sparsereel::attention::cuda
