// Writes captured attention calls, which `bench attention --captured` reads.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/lab/measure/captured.h"
#include "app/tensor_file.h"
#include "hilbert/error.h"

namespace sparsereel::app {

/// Writes `capture` in fp16, because the kernels take fp16 and the file is then half as large. `metadata` is added to
/// the metadata that read_capture() needs. Throws Error if fp16 cannot hold a value.
inline void write_capture(const std::filesystem::path& file, const Capture& capture,
                          std::map<std::string, std::string> metadata) {
  const auto tensor_name = [](const CapturedCall& call, const std::string& part) {
    return "step" + std::to_string(call.step) + ".layer" + std::to_string(call.layer) + "." + part;
  };
  std::vector<at::Tensor> halves;  // own the bytes that `views` refer to
  std::vector<models::TensorView> views;
  std::string names;
  for (const CapturedCall& call : capture.calls) {
    if (!names.empty()) names += ' ';
    names.append(std::to_string(call.step)).append("/").append(std::to_string(call.layer));
    for (const auto& [part, tensor] : {std::pair("q", call.q), std::pair("k", call.k), std::pair("v", call.v)}) {
      halves.push_back(tensor.to(at::kCPU, at::kHalf).contiguous());
      if (!at::isfinite(halves.back()).all().item<bool>())
        throw run_failure(tensor_name(call, part) + " holds values that fp16 cannot", "capture other layers or steps");
      views.push_back(view_of(tensor_name(call, part), halves.back()));
    }
  }
  metadata["frames"] = std::to_string(capture.grid.frames);
  metadata["height"] = std::to_string(capture.grid.height);
  metadata["width"] = std::to_string(capture.grid.width);
  metadata["text_tokens"] = std::to_string(capture.text_tokens);
  metadata["calls"] = names;  // "STEP/LAYER STEP/LAYER ..."
  models::write_safetensors(file, views, metadata);
}

}  // namespace sparsereel::app
