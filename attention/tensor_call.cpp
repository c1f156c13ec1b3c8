// Fills a call from tensors and a context.
#include "attention/tensor_call.h"

#include <ATen/ATen.h>

namespace sparsereel::attention {

Call call_of(const at::Tensor& q, const at::Tensor& k, const Context& context, double scale) {
  Call call;
  call.quantized = context.mode == Mode::quantized;
  call.batch = q.size(0);
  call.heads = q.size(2);
  call.kv_heads = k.size(2);
  call.queries = q.size(1);
  call.keys = k.size(1);
  call.head_dim = q.size(3);
  call.scale = scale;
  call.text_tokens = context.text_tokens;
  call.causal = context.causal;
  call.policy = context.policy;
  if (context.block_map) call.map = context.block_map->bits.data();
  call.predicts_error = context.mode == Mode::check;
  call.part = context.part ? &*context.part : nullptr;
  call.leaves_out_attention = context.only_prepass;
  return call;
}

RunCounts run_in(Workspace& workspace, Executor& executor, const Call& call, at::Device device, void* stream) {
  at::Tensor& scratch = workspace.scratch;
  const size_t bytes = executor.workspace_bytes(call);
  if (!scratch.defined() || scratch.device() != device || scratch.numel() < static_cast<int64_t>(bytes))
    scratch = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
  return executor.run(call, scratch.mutable_data_ptr(), static_cast<size_t>(scratch.numel()), stream);
}

}  // namespace sparsereel::attention
