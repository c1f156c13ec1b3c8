// Binds the CUDA kernels to tensors.
#pragma once

#include <optional>

#include "attention/attention.h"
#include "attention/call.h"

namespace sparsereel::attention {

/// Modes quantized and sparse on a GPU; q, k, v and context as checked by attend(), `call` as call_of() makes it.
/// Enqueues on the current stream and
/// does not wait.
Result run_on_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
                   const Call& call, Workspace& workspace);

/// Whether few_keys_on_cuda() takes a call of mode full: fp16 or bf16 on a GPU, no more keys than its shared memory
/// holds (320 of head_dim 128 on an H100), no other mask than a key_bias, and of a prologue the RMS norm across heads
/// alone.
bool has_few_keys_kernel(const at::Tensor& q, const at::Tensor& k, const Context& context);

/// Enqueues that call, its prologue included.
Result few_keys_on_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Context& context,
                        double scale);

/// attention_weights() of a call for which has_few_keys_kernel() holds.
std::optional<Result> weights_on_cuda(const at::Tensor& q, const at::Tensor& k, const Context& context, double scale);

/// x[:, index] of x [B, N, C] on a GPU, rows of contiguous C in a multiple of 2 bytes; index int64 [M].
at::Tensor gather_on_cuda(const at::Tensor& x, const at::Tensor& index);

/// Empty where the kernels can run on this device with this element type, else the reason.
std::string cuda_unsupported_reason(at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::attention
