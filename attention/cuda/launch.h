// The CUDA attention kernels as plain functions: raw pointers, strides and a stream. No torch, no CUDA header.
//
// A call does not wait for the device. It runs in the caller's stream and in two side streams, which start after
// earlier work of the caller's stream and end before later work. The steps are:
//   statistics: the mean of K, the center and scale of V, and the factors that balance Q and K
//   quantize: 8-bit records of Q, K and V, and the means for the selection
//   select and lists: the key blocks that matter to each query tile
//   attention over the lists
// All scratch memory is one buffer of scratch_bytes(), which the caller owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "attention/cuda/kernel_traits.h"
#include "attention/head_part.h"

namespace sparsereel::attention::cuda {

/// Returns this build's fastest kernel for a head_dim on a GPU of this compute capability (90 for 9.0), or the kernel
/// with the name `forced` if that can run there. Returns nullopt below 8.0. reads_rows: see KernelTraits.
std::optional<Kernel> choose_kernel(int compute_capability, int head_dim, bool reads_rows = false,
                                    std::string_view forced = {});

/// Returns the bytes of scratch that attention() needs for a call.
size_t scratch_bytes(const KernelParams& params, Kernel kernel);

/// The steps to run. `prepass` leaves out attention itself, for measurements.
enum class Steps { prepass, all };

/// The two side streams of a device, and the events that connect them with the caller's stream. Only one thread at a
/// time may enqueue a call with the same SideStreams.
class SideStreams;

/// Creates the side streams of the current device. Returns null if CUDA refuses, with its message in `failure`.
std::shared_ptr<const SideStreams> make_side_streams(const char*& failure);

/// Enqueues the call on the device of the side streams, which must be current. scratch: device memory aligned to 1024
/// bytes. Its content is not read before it is written, and need not be kept. part: null if the call has all heads;
/// otherwise Selection::first_head and all_heads say which heads it has. Returns null or CUDA's message.
const char* attention(const KernelParams& params, Kernel kernel, Steps steps, void* scratch, const SideStreams& side,
                      Stream stream, const HeadPart* part = nullptr);

/// Enqueues the computation of moments. Returns null or CUDA's message.
const char* find_moments(const MomentRows& rows, Stream stream);

/// Enqueues out = prologue(in) for q or k alone. Returns null or CUDA's message.
const char* apply_prologue(PrologueRows p, Stream stream);

/// Returns the largest number of keys that attend_few_keys() supports: as many as fit into the current GPU's shared
/// memory; 0 if it does not support the head_dim.
int most_few_keys(int head_dim);

/// Enqueues a call in 16 bits with at most most_few_keys() keys, as in cross-attention to a text. It supports a
/// key_bias but no other mask, and no grouped heads, selection or lse. The prologue must be empty or an RMS norm across
/// heads without biases. `moments` is scratch of batch * (queries + keys) * 2 floats for that norm. Returns null, the
/// unsupported feature, or CUDA's message.
const char* attend_few_keys(const KernelParams& params, float* moments, Stream stream);

/// Largest number of keys that weigh_few_keys() supports.
constexpr int kMostWeighedKeys = 64;

/// Computes the attention weights softmax(q k^T scale + key_bias). The call must be one that attend_few_keys()
/// supports, with at most kMostWeighedKeys keys. v is not read. p.out is [batch, queries, heads, keys rounded up to a
/// multiple of 8], with zeros after the last key and with rows aligned to 8 bytes. If out_scale is set, p.out holds 448
/// times the weights in e4m3; out_scale itself is not written.
const char* weigh_few_keys(const KernelParams& p, float* moments, Stream stream);

/// Copies out[b, i, :] = in[b, index[i], :] for i < rows. Rows have `row_bytes` bytes, a multiple of 2; strides are in
/// bytes. Returns null or CUDA's message.
const char* gather_rows(const void* in, int64_t in_batch_stride, int64_t in_row_stride, const int64_t* index, void* out,
                        int64_t out_batch_stride, int64_t out_row_stride, int batch, int rows, int row_bytes,
                        Stream stream);

}  // namespace sparsereel::attention::cuda
