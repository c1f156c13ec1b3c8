// Turns a call into the parameters of the CUDA kernels. No torch, no CUDA header.
#pragma once

#include "attention/call.h"
#include "attention/cuda/kernel_params.h"

namespace sparsereel::attention {

/// Returns the parameters without the selection.
inline cuda::KernelParams cuda_params_of(const Call& call) {
  cuda::KernelParams params{{.batch = static_cast<int>(call.batch),
                             .heads = static_cast<int>(call.heads),
                             .kv_heads = static_cast<int>(call.kv_heads),
                             .queries = static_cast<int>(call.queries),
                             .keys = static_cast<int>(call.keys),
                             .head_dim = static_cast<int>(call.head_dim)},
                            call,
                            {.scale = static_cast<float>(call.scale),
                             .text_tokens = static_cast<int>(call.text_tokens),
                             .causal = call.causal,
                             .key_lengths = call.key_lengths}};
  const CallPrologue& prologue = call.prologue;
  const auto same = [](const float* array) { return array; };
  params.prologue = with_arrays<cuda::Prologue>(prologue, same, prologue.rotary_pairs);
  if (prologue.rotates() || prologue.is_by_part())
    params.prologue.rotary_tokens = static_cast<int>(prologue.rotated_tokens(call.queries, call.text_tokens));
  params.counts = call.counts;
  return params;
}

}  // namespace sparsereel::attention
