// A table of the attention kernels. A row holds all that code outside the kernels must know about one kernel.
#pragma once

#include "attention/cuda/device.h"
#include "attention/cuda/records.h"

namespace sparsereel::attention::cuda {

/// The kernels that compute attention over the lists of key blocks.
enum class Kernel { hopper, ada, ampere, sixteen };

/// The format of the records of V.
enum class ValueFormat {
  e4m3_less_mean,  // a row for each channel in e4m3, minus the row's mean, which is stored separately. Then
                   // rows of ones, to sum P's rows (ones_sets())
  int8,            // rows of channels in int8, then an fp32 scale for each channel
  half,            // rows of keys in fp16
};

constexpr int value_record_bytes(ValueFormat format, int D) {
  if (format == ValueFormat::half) return 2 * D * kRecord;
  if (format == ValueFormat::int8) return D * (kRecord + static_cast<int>(sizeof(float)));
  return (D + kOnesRows * ones_sets(D)) * kRecord;
}

struct KernelTraits {
  Kernel kernel;
  const char* name;        // value of the environment variable SPARSEREEL_ATTENTION_KERNEL
  const char* label;       // describes its P.V in texts for people
  int least_capability;    // smallest compute capability, 90 for 9.0
  bool needs_90a = false;  // true if it is compiled only for 90a, code that runs on 9.0 alone
  int most_head_dim = 256;
  int tile_rows;  // query rows that share a list of key blocks
  /// True if it multiplies the call's rows in their own type. Records then serve only to choose blocks.
  bool reads_rows = false;
  bool shares_tiles = false;  // true if its last tiles may be split among multiprocessors (shares.h)
  bool writes_e4m3 = false;   // true if it supports KernelParams::out_scale
  /// The format of the records of V. Kernels with reads_rows have no such records.
  ValueFormat values = ValueFormat::int8;
  /// Largest number of key blocks for which the scores of 16 selection tiles fit into shared memory. A CTA gets up to
  /// 99 KB on GPUs of compute capability 8.6 and 8.9, and up to 227 KB on Hopper.
  int max_shared_scores = 1400;
};

/// All kernels, in the order of Kernel. The fastest kernel for a call is the first one that can run it. So `ampere`
/// runs only if it is named. Its P.V has the smallest error, .0003 against .0084 of int8, but takes twice (A100) or
/// four times (RTX 30) as long.
inline constexpr KernelTraits kKernels[] = {
    {.kernel = Kernel::hopper,  // wgmma and bulk copies
     .name = "hopper",
     .label = "e4m3 P.V (hopper)",
     .least_capability = 90,
     .needs_90a = true,
     .most_head_dim = 128,
     .tile_rows = 192,
     .shares_tiles = true,
     .writes_e4m3 = true,
     .values = ValueFormat::e4m3_less_mean,
     .max_shared_scores = 3072},
    {.kernel = Kernel::ada,  // mma.sync with int8
     .name = "ada",
     .label = "int8 P.V (ada)",
     .least_capability = 80,
     .tile_rows = 128,
     .values = ValueFormat::int8},
    {.kernel = Kernel::ampere,  // mma.sync with fp16
     .name = "ampere",
     .label = "fp16 P.V (ampere)",
     .least_capability = 80,
     .tile_rows = 128,
     .values = ValueFormat::half},
    {.kernel = Kernel::sixteen,  // mma.sync in the call's own type
     .name = "sixteen",
     .label = "P.V (mma)",
     .least_capability = 80,
     .tile_rows = 192,
     .reads_rows = true},
};

constexpr const KernelTraits& traits_of(Kernel kernel) {
  return kKernels[static_cast<int>(kernel)];
}

constexpr bool rows_are_in_order() {
  for (const KernelTraits& row : kKernels)
    if (&row != &traits_of(row.kernel)) return false;
  return true;
}
static_assert(rows_are_in_order());

}  // namespace sparsereel::attention::cuda
