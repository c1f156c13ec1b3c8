// Functions that enqueue the steps of a call, with one or two kernels each. Only for attention/cuda, inside launched().
#pragma once

#include <functional>

#include "attention/cuda/launched.cuh"
#include "attention/cuda/scratch.h"

namespace sparsereel::attention::cuda {

struct LaunchContext {
  const KernelTraits& kernel;  // that attends
  const KernelParams& params;
  const Sizes& sizes;
  const Buffers& buffers;
  Stream stream;

  LaunchContext in(Stream other) const { return {kernel, params, sizes, buffers, other}; }

  /// Starts a kernel that takes the parameters, sizes and buffers. Only for use inside launched().
  template <typename Function>
  void start(Function* function, dim3 grid, dim3 block, size_t shared_bytes = 0) const {
    cuda::start(function, grid, block, shared_bytes, stream, params, sizes, buffers);
  }
};

/// Copies the head choices and makes the rotary pairs that kernels need, in scratch memory. Returns the parameters with
/// pointers to them.
KernelParams launch_inputs(const KernelParams& params, const Buffers& buffers, Stream stream);

void launch_moments(const MomentRows& rows, Stream stream);

/// Runs apply_prologue(). If it needs moments, they must exist already.
void launch_prologue(const PrologueRows& p, Stream stream);
/// Writes the rows of q and k after their prologue to scratch memory, for kernels that read rows. Returns the
/// parameters with those rows.
KernelParams launch_rows(const KernelParams& params, const Buffers& buffers, Stream stream);
/// If the norm is across heads, writes the moments of q to `moments`, and the moments of k behind them. If the caller
/// gave moments, copies them.
void launch_moments(const KernelParams& params, float* moments, Stream stream);
/// Computes the mean of K, the balance of Q and K, and center and scale of V. It reads every stat_stride-th key and
/// query_stride-th query. Also resets the tile counter and the length classes.
void launch_statistics(const LaunchContext& context);
/// These write the records (records.h) of Q and K, and those of V in the kernel's format, with their scales. If blocks
/// are predicted, they also write pooled means and similarities of Q and K.
void launch_quantize_queries(const LaunchContext& context);
void launch_quantize_keys(const LaunchContext& context);
void launch_quantize_values(const LaunchContext& context);
/// If means replace dropped blocks, these write records of means of 16 tokens from the records of K and V. If blocks
/// are ranked by error, they also write the variances within K's blocks and the spreads of V's blocks.
void launch_means_of_keys(const LaunchContext& context);
void launch_means_of_values(const LaunchContext& context);
/// Writes means of k and v as 16-bit rows, and the spreads of V's blocks, for kernels that read rows.
void launch_sixteen_means(const LaunchContext& context);
/// If key blocks are ranked by error, computes their masses, the part of the selection that does not need V.
void launch_masses(const LaunchContext& context);
/// `times` rows of `count` numbers each. The first numbers of consecutive rows are `apart` numbers apart.
struct Numbers {
  int64_t* first;
  int count, apart, times;
};
using AddUp = std::function<void(Numbers numbers)>;
/// Writes and counts the lists of key blocks that the first listed_tiles keep, and bitmaps for the other selection
/// tiles. add_up: sums counts over all ranks whose heads choose together, in place and in the stream; empty if no other
/// rank has such heads.
void launch_select(const LaunchContext& context, const AddUp& add_up);
/// Writes and counts the lists of key blocks for the other query tiles.
void launch_lists(const LaunchContext& context);
/// These run attention over the lists. launch_hopper_shared() computes the shared tiles beside launch_hopper().
void launch_hopper(const LaunchContext& context);
void launch_hopper_shared(const LaunchContext& context);
void launch_ampere(const LaunchContext& context);
void launch_ada(const LaunchContext& context);
void launch_sixteen_fp16(const LaunchContext& context);
void launch_sixteen_bf16(const LaunchContext& context);

}  // namespace sparsereel::attention::cuda
