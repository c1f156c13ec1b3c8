// The q, k and v of a real run's attention calls in a file: tests/support/capture_file.h writes it, benchmarks
// measure on it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hilbert/token_order.h"

namespace sparsereel::app {

/// q, k, v [B, N, heads, head_dim] after norm and rotary embedding: video tokens in native order, then text.
struct CapturedCall {
  int64_t step = 0, layer = 0;
  at::Tensor q = {}, k = {}, v = {};
};

struct Capture {
  hilbert::Grid grid;
  int64_t text_tokens = 0;
  std::vector<CapturedCall> calls;  // at least one, all of one shape
};

/// The calls in fp16. Throws Error naming the file and what of it is missing or wrong.
Capture read_capture(const std::filesystem::path& file);

/// Index [N] that brings a capture's video tokens into an order, text still last.
at::Tensor places_in(hilbert::TokenOrder order, const Capture& capture);

}  // namespace sparsereel::app
