// Checks that a call is valid.
#pragma once

#include "attention/call.h"

namespace sparsereel::attention {

constexpr int64_t kMinHeadDim = 16, kMaxHeadDim = 256;

/// Checks only batch, heads, tokens and head_dim. Throws Error as check() does.
void check_sizes(const Call& call);

/// Throws Error if sizes, masks, prologue and policy contradict each other. Tests whether pointers are null, but reads
/// nothing through them. The executors check the memory layout, and whether their device supports the call.
void check(const Call& call);

/// Throws Error if a length is not in [0, keys]. lengths: [batch] in host memory.
void check_key_lengths(const int64_t* lengths, int64_t batch, int64_t keys);

/// Largest number of tokens of a GPU call. The kernels read lists of the key blocks to compute, and an entry of a list
/// stores the index of a block of 64 keys in 20 bits (cuda/records.h).
constexpr int64_t kMostGpuTokens = int64_t{1} << 26;

/// Throws Refusal for sizes that are too large for GPU kernels: more than kMostGpuTokens tokens, or 2^31 or more rows
/// over all heads. Also throws Refusal if a CUDA grid would need more than 65,535 blocks along its second or third
/// axis.
void check_gpu_sizes(const Call& call);

/// Throws Refusal for a compute capability without a kernel (75 means 7.5).
void check_capability(int device, int capability);

/// Throws Refusal if q, k, v or out is null, if a stride is negative, if a tensor spans more than 2^48 elements, or if
/// rows of out overlap.
void check_rows(const Call& call);

}  // namespace sparsereel::attention
