// Functions that enqueue the steps of a call, each as one or two kernels. They are only for attention/cuda, and only
// for use inside launched().
#pragma once

#include <functional>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/scratch.h"

namespace sparsereel::attention::cuda {

struct LaunchContext {
  const KernelTraits& kernel;  // the traits of the attention kernel that the call uses
  const KernelParams& params;
  const Sizes& sizes;
  const Buffers& buffers;
  Stream stream;

  LaunchContext in(Stream other) const { return {kernel, params, sizes, buffers, other}; }

  /// Starts a kernel with the parameters, sizes and buffers as its arguments. Only for use inside launched().
  template <typename Function>
  void start(Function* function, dim3 grid, dim3 block, size_t shared_bytes = 0) const {
    cuda::start(function, grid, block, shared_bytes, stream, params, sizes, buffers);
  }
};

/// Copies the heads' choices to scratch memory, and writes the rotary pairs there if the call has only tables. Returns
/// the parameters with pointers to the copies.
KernelParams launch_inputs(const KernelParams& params, const Buffers& buffers, Stream stream);

void launch_moments(const MomentRows& rows, Stream stream);

/// Enqueues the kernel of apply_prologue(). If the norm needs moments, p.norm.moments must point to them already.
void launch_prologue(const PrologueRows& p, Stream stream);
/// Applies the prologue to q and k and writes the resulting rows to scratch memory, for kernels that read rows. Returns
/// the parameters with pointers to these rows.
KernelParams launch_rows(const KernelParams& params, const Buffers& buffers, Stream stream);
/// If the norm is across heads, writes the moments of q to `moments`, and behind them the moments of k. If the caller
/// gave moments, copies those.
void launch_moments(const KernelParams& params, float* moments, Stream stream);
/// Computes the mean of K, the factors that balance Q and K, and the center and scale of V, from a sample: every
/// stat_stride-th key and every query_stride-th query. Also sets the tile counter and the length classes (Buffers) to
/// 0.
void launch_statistics(const LaunchContext& context);
/// These functions write the records of Q, of K, and of V in the kernel's format, with their scales (records.h). If
/// blocks are predicted, they also write the mean rows and the similarities of Q and K.
void launch_quantize_queries(const LaunchContext& context);
void launch_quantize_keys(const LaunchContext& context);
void launch_quantize_values(const LaunchContext& context);
/// These functions are needed if means replace dropped blocks: they compute means of 16 tokens from the records of K
/// and V, and write them as records of 64 means. If blocks are ranked by error, they also write Buffers::k_variance and
/// Buffers::v_spread.
void launch_means_of_keys(const LaunchContext& context);
void launch_means_of_values(const LaunchContext& context);
/// Does the same for kernels that read rows: writes the means of k and v as 16-bit rows, and the spreads of V's blocks.
void launch_sixteen_means(const LaunchContext& context);
/// If key blocks are ranked by error, computes their masses. This is the part of the selection that does not need V.
void launch_masses(const LaunchContext& context);
/// Counts in memory: `times` rows of `count` numbers each. Consecutive rows begin `apart` numbers apart.
struct Numbers {
  int64_t* first;
  int count, apart, times;
};
using AddUp = std::function<void(Numbers numbers)>;
/// For the first listed_tiles query tiles of each head, writes the lists of key blocks that they keep, and counts these
/// blocks. For other selection tiles, writes bitmaps of the kept blocks. add_up: sums counts over all ranks whose heads
/// choose together, in place and in the stream; empty if no other rank has such heads.
void launch_select(const LaunchContext& context, const AddUp& add_up);
/// Writes the lists of key blocks of the other query tiles, and counts these blocks.
void launch_lists(const LaunchContext& context);
/// These functions run attention over the lists. launch_hopper_shared() computes the tiles that are split into parts
/// (shares.h), beside launch_hopper().
void launch_hopper(const LaunchContext& context);
void launch_hopper_shared(const LaunchContext& context);
void launch_ampere(const LaunchContext& context);
void launch_ada(const LaunchContext& context);
void launch_sixteen_fp16(const LaunchContext& context);
void launch_sixteen_bf16(const LaunchContext& context);

}  // namespace sparsereel::attention::cuda
