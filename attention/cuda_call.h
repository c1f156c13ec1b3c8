// Runs the CUDA attention kernels on tensors.
#pragma once

#include <optional>

#include "attention/attention.h"
#include "attention/call.h"

namespace sparsereel::attention {

/// Runs modes quantized and sparse on a GPU. attend() has checked q, k, v and the context; call_of() made `call`.
/// Enqueues on the current stream and does not wait.
Result run_on_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
                   const Call& call, Workspace& workspace);

/// Returns true if few_keys_on_cuda() can compute a call of mode full. The call must be in fp16 or bf16 on a GPU, with
/// a head_dim of 64 or 128 and as many heads of k as of q, and return no lse. It may have a key_bias, but no other
/// mask. All keys must fit in shared memory (up to 320 keys of head_dim 128 on an H100). The prologue must be empty or
/// an RMS norm across heads, without biases.
bool has_few_keys_kernel(const at::Tensor& q, const at::Tensor& k, const Context& context);

/// Enqueues a call for which has_few_keys_kernel() is true, including its prologue.
Result few_keys_on_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
                        const Call& call);

/// Implements attention_weights() for calls for which has_few_keys_kernel() is true. Returns nullopt if there are more
/// than cuda::kMostWeighedKeys keys.
std::optional<Result> weights_on_cuda(const at::Tensor& q, const at::Tensor& k, const Context& context,
                                      const Call& call);

/// Returns x[:, index] of x [B, N, C] on a GPU. C is contiguous and a multiple of 2 bytes; index is int64 [M].
at::Tensor gather_on_cuda(const at::Tensor& x, const at::Tensor& index);

/// Returns an empty text if the kernels can run on this device with this dtype, otherwise the reason why not.
std::string cuda_unsupported_reason(at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::attention
