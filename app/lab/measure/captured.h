// Reads the q, k and v of a real run's attention calls from a file that tests/support/capture_file.h writes. Benchmarks
// measure on them.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hilbert/token_order.h"

namespace sparsereel::app {

/// q, k, v [B, N, heads, head_dim] after norm and rotary embedding; video tokens in native order, then text.
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

/// Returns the index [N] that puts a capture's video tokens into an order; text stays last.
at::Tensor places_in(hilbert::TokenOrder order, const Capture& capture);

}  // namespace sparsereel::app
