// Calls the C interface on a CPU with the inputs of the core's tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sparsereel/attention.hpp"
#include "tests/unit/attention/cpu/attention_case.h"

namespace sparsereel::attention {

inline sparsereel_tensor tensor_of(const cpu::View<const float>& view) {
  return {const_cast<float*>(view.data), view.batch_stride, view.token_stride, view.head_stride};
}

/// A call of the C interface for a case, and memory for its results.
struct Caller {
  explicit Caller(const cpu::Case& c, int device = SPARSEREEL_CPU) : library(device) {
    const cpu::KernelParams& p = c.params;
    call.batch = p.batch;
    call.heads = p.heads;
    call.kv_heads = p.kv_heads;
    call.queries = p.queries;
    call.keys = p.keys;
    call.head_dim = p.head_dim;
    call.q = tensor_of(p.q);
    call.k = tensor_of(p.k);
    call.v = tensor_of(p.v);
    out.assign(static_cast<size_t>(p.batch * p.queries * p.heads * p.head_dim), NAN);
    lse.assign(static_cast<size_t>(p.batch * p.heads * p.queries), NAN);
    call.out = {out.data(), p.queries * p.heads * p.head_dim, p.heads * p.head_dim, p.head_dim};
    call.lse = lse.data();
    call.text_tokens = p.text_tokens;
    call.causal = p.causal ? 1 : 0;
    call.key_lengths = p.key_lengths;
    call.counts = counts;
  }

  /// Runs the call and returns the output. The workspace has the size that the library asks for, and holds garbage.
  std::vector<float> run() {
    workspace.assign(library.workspace_size(call), '\xFF');
    EXPECT_TRUE(library.run(call, workspace.data(), workspace.size()));
    return out;
  }

  /// Runs a call that must fail with `cause` in its message, and returns the status.
  sparsereel_status refusal(const std::string& cause) {
    size_t bytes = 0;
    sparsereel_status status = sparsereel_attention_workspace_size(library.get(), &call, &bytes);
    workspace.resize(std::max<size_t>(workspace.size(), bytes));
    if (status == SPARSEREEL_OK)
      status = sparsereel_attention_run(library.get(), &call, workspace.data(), workspace.size(), nullptr);
    EXPECT_NE(std::string(sparsereel_message()).find(cause), std::string::npos) << sparsereel_message();
    return status;
  }

  Attention library;
  AttentionCall call;
  std::vector<float> out, lse;
  std::vector<char> workspace;
  uint64_t counts[SPARSEREEL_COUNTS] = {};
};

inline void keep_all(AttentionCall& call) {
  call.policy.all.selection = SPARSEREEL_DENSE;
}

}  // namespace sparsereel::attention
