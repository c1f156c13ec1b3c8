// The file between capture_attention and what measures on it: q, k and v of attention calls, after the prologue.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hilbert/token_order.h"
#include "tests/bench/program.h"

namespace sparsereel::bench {

/// q, k, v [B, N, heads, head_dim]: video tokens in native order, then text.
struct CapturedCall {
  int64_t step = 0, layer = 0;
  at::Tensor q, k, v;
};

struct Capture {
  hilbert::Grid grid;
  int64_t text_tokens = 0;
  std::vector<CapturedCall> calls;
};

inline std::string tensor_name(const CapturedCall& call, const std::string& part) {
  return "step" + std::to_string(call.step) + ".layer" + std::to_string(call.layer) + "." + part;
}

/// As fp16, which is what kernels are given and half the size. `metadata` is added to what read_capture() needs.
inline void write_capture(const std::string& path, const Capture& capture,
                          std::map<std::string, std::string> metadata) {
  std::vector<at::Tensor> halves;  // keeps the bytes alive
  std::vector<models::TensorView> views;
  std::string names;
  for (const CapturedCall& call : capture.calls) {
    names += (names.empty() ? "" : " ") + std::to_string(call.step) + "/" + std::to_string(call.layer);
    for (const auto& [part, tensor] : {std::pair("q", call.q), std::pair("k", call.k), std::pair("v", call.v)}) {
      halves.push_back(tensor.to(at::kCPU, at::kHalf).contiguous());
      if (!at::isfinite(halves.back()).all().item<bool>())
        throw run_failure(tensor_name(call, part) + " holds values that fp16 cannot", "capture other layers or steps");
      const auto* bytes = static_cast<const std::byte*>(halves.back().const_data_ptr());
      views.push_back({.name = tensor_name(call, part),
                       .dtype = models::Dtype::f16,
                       .shape = tensor.sizes().vec(),
                       .data = {bytes, halves.back().nbytes()}});
    }
  }
  metadata["frames"] = std::to_string(capture.grid.frames);
  metadata["height"] = std::to_string(capture.grid.height);
  metadata["width"] = std::to_string(capture.grid.width);
  metadata["text_tokens"] = std::to_string(capture.text_tokens);
  metadata["calls"] = names;  // STEP/LAYER ...
  models::write_safetensors(path, views, metadata);
}

inline Capture read_capture(const std::string& path) {
  const models::SafetensorsFile file(path);
  const auto field = [&](const std::string& name) {
    const auto found = file.header().metadata.find(name);
    if (found == file.header().metadata.end())
      throw bad_input(path + " has no metadata entry " + name, "let capture_attention write it");
    return found->second;
  };
  Capture capture{.grid = {.frames = std::stoll(field("frames")),
                           .height = std::stoll(field("height")),
                           .width = std::stoll(field("width"))},
                  .text_tokens = std::stoll(field("text_tokens")),
                  .calls = {}};
  std::istringstream names(field("calls"));
  char slash = 0;
  for (CapturedCall call; names >> call.step >> slash >> call.layer;) {
    const auto read = [&](const char* part) {
      return read_tensor(file, tensor_name(call, part), at::kHalf).to(at::kFloat);
    };
    capture.calls.push_back({.step = call.step, .layer = call.layer, .q = read("q"), .k = read("k"), .v = read("v")});
  }
  return capture;
}

}  // namespace sparsereel::bench
