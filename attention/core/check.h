// Whether a call can be what its caller means.
#pragma once

#include "attention/call.h"

namespace sparsereel::attention {

constexpr int64_t kMinHeadDim = 16, kMaxHeadDim = 256;

/// Throws the Error of check() that concerns batch, heads, tokens and head_dim alone.
void check_sizes(const Call& call);

/// Throws Error where sizes, masks and policy contradict each other, whatever the pointers are; how they are put to
/// memory, and what a device can do, the executors check.
void check(const Call& call);

/// Key lengths of the host's memory.
void check_key_lengths(const int64_t* lengths, int64_t batch, int64_t keys);

constexpr int64_t kMostGpuTokens = int64_t{1} << 26;  // a list of key blocks has 20 bits for the number of each

/// Throws Refusal for sizes that a GPU's kernels cannot count: more tokens than kMostGpuTokens, 2^31 rows of all heads
/// or more, or more than 65,535 blocks along the second or third axis of a CUDA grid.
void check_gpu_sizes(const Call& call);

/// Throws Refusal for a compute capability (75: 7.5) that no kernel is made for.
void check_capability(int device, int capability);

/// Throws Refusal where a pointer is null, strides are negative or reach too far, or rows of out overlap.
void check_rows(const Call& call);

}  // namespace sparsereel::attention
