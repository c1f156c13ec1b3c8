// Reads q, k and v of attention calls that were captured in a real run, so that benchmarks can measure on them.
// tests/support/capture_file.h writes the file.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hilbert/token_order.h"

namespace sparsereel::app {

/// An attention call: fp16 q, k and v, [B, N, heads, head_dim], after norm and rotary embedding. Video tokens come
/// first, in native order, then text tokens.
struct CapturedCall {
  int64_t step = 0, layer = 0;
  at::Tensor q = {}, k = {}, v = {};
};

struct Capture {
  hilbert::Grid grid;
  int64_t text_tokens = 0;
  std::vector<CapturedCall> calls;  // at least one; all have the same shape
};

/// Reads the calls in fp16. Throws Error naming the file and the part that is missing or wrong.
Capture read_capture(const std::filesystem::path& file);

/// Returns int64 [N]: for each position in the token order `order`, the index of its token in the capture. Text tokens
/// come last in both.
at::Tensor places_in(hilbert::TokenOrder order, const Capture& capture);

}  // namespace sparsereel::app
