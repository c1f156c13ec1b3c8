// The CUDA attention kernels as plain functions: raw pointers, strides and a stream. No torch, no CUDA header.
//
// One call runs, without waiting for the device, in the caller's stream and two beside it that start and end there:
//   statistics (mean of K, centre and largest |V|) -> quantise (8-bit records, pooled means) -> select and lists (the
//   key blocks that matter to each query tile) -> attention over the lists.
// All scratch lives in one buffer of scratch_bytes() that the caller owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "attention/cuda/problem.h"
#include "attention/head_part.h"

namespace sparsereel::attention::cuda {

/// The kernel in 8 bits that this build holds for a head_dim on a GPU of this compute capability (90 for 9.0); empty
/// below 8.0.
std::optional<Kernel> choose_kernel(int compute_capability, int head_dim);

/// Bytes of scratch that attention() needs for a problem.
size_t scratch_bytes(const Problem& problem, Kernel kernel);

/// prepass: everything but attention itself, for measuring.
enum class Steps { prepass, all };

/// The streams of one device that calls use beside their caller's, and the events that tie the three together. Calls
/// that share them are enqueued one after the other.
class SideStreams;

/// Of the current device. Null where CUDA refuses, whose words `problem` then points to.
std::shared_ptr<const SideStreams> make_side_streams(const char*& problem);

/// Enqueues the call on the device of the side streams, which is the current one. scratch: device memory aligned to
/// 1024 bytes, contents irrelevant before and after. part: null where the heads are all there are, else as
/// Selection::first_head and all_heads say. Returns null, or what CUDA said.
const char* attention(const Problem& problem, Kernel kernel, Steps steps, void* scratch, const SideStreams& side,
                      Stream stream, const HeadPart* part = nullptr);

/// Enqueues them. Returns null, or what CUDA said.
const char* find_moments(const MomentRows& rows, Stream stream);

/// Enqueues out = prologue(in). Returns null, or what CUDA said.
const char* apply_prologue(const PrologueRows& p, Stream stream);

/// To how many keys attend_few_keys() goes: what the current GPU's shared memory holds; 0 for a head_dim that it does
/// not take.
int most_few_keys(int head_dim);

/// Enqueues a call in 16 bits to at most most_few_keys(), as cross-attention to a text has them: without mask, groups,
/// selection and lse; of prologues there is the RMS norm across heads, without biases. moments: scratch of [batch,
/// queries + keys, 2] for that norm. Returns null, what it does not take, or what CUDA said.
const char* attend_few_keys(const Problem& problem, float* moments, Stream stream);

constexpr int kMostWeighedKeys = 64;

/// The weights of such a call instead: p.out [batch, queries, heads, keys rounded up to a multiple of 8, the rest
/// zeros] becomes softmax(q k^T scale + key_bias), rows on 8 bytes; with an out_scale, which is not written, e4m3 of
/// 448 times that. v is not read. At most kMostWeighedKeys.
const char* weigh_few_keys(const Problem& p, float* moments, Stream stream);

/// out[b, i, :] = in[b, index[i], :] for i < rows: rows of `row_bytes` bytes, a multiple of 2; strides in bytes.
/// Returns null, or what CUDA said.
const char* gather_rows(const void* in, int64_t in_batch_stride, int64_t in_row_stride, const int64_t* index, void* out,
                        int64_t out_batch_stride, int64_t out_row_stride, int batch, int rows, int row_bytes,
                        Stream stream);

}  // namespace sparsereel::attention::cuda
