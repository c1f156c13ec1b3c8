// Turns attention calls on tensors into calls for an Executor, which does not know torch, and runs these in a
// Workspace.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/attention.h"
#include "attention/core/executor.h"

namespace sparsereel::attention {

inline StridedRows rows_of(const at::Tensor& x) {
  return {.data = x.data_ptr(), .batch_stride = x.stride(0), .token_stride = x.stride(1), .head_stride = x.stride(2)};
}

/// Returns a call with the sizes, masks and policy of a call whose tensors attend() has checked. The result's pointers
/// to tensors are null; its pointers to the context's map and part are set.
Call call_of(const at::Tensor& q, const at::Tensor& k, const Context& context, double scale);

/// Runs a call on `device` in the workspace's scratch memory.
RunCounts run_in(Workspace& workspace, Executor& executor, const Call& call, at::Device device, void* stream);

}  // namespace sparsereel::attention
