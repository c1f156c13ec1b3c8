// Reads the tensors, which are called stepS.layerL.q and so on, and checks the file's metadata.
#include "app/lab/measure/captured.h"

#include <ATen/ATen.h>

#include <utility>

#include "app/tensor_file.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app {
namespace {

constexpr const char* kCaptureAgain = "write the file with build/tests/bench/capture_attention";
constexpr int64_t kMostTokens = 1 << 24;

std::string tensor_name(const CapturedCall& call, const std::string& part) {
  return "step" + std::to_string(call.step) + ".layer" + std::to_string(call.layer) + "." + part;
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : file_(file) {}

  int64_t number(const std::string& name, int64_t least) const { return number_in(name, text(name), least); }

  std::vector<CapturedCall> calls() const {
    std::vector<CapturedCall> calls;
    for (const std::string& name : split(text("calls"), ' ')) {
      const size_t slash = std::min(name.find('/'), name.size());
      CapturedCall call{.step = number_in("calls", name.substr(0, slash), 0),
                        .layer = number_in("calls", name.substr(std::min(slash + 1, name.size())), 0)};
      for (const auto& [part, target] : {std::pair("q", &call.q), std::pair("k", &call.k), std::pair("v", &call.v)})
        *target = tensor(tensor_name(call, part));
      calls.push_back(std::move(call));
    }
    return calls;
  }

 private:
  std::string text(const std::string& name) const {
    const auto found = file_.metadata().find(name);
    if (found == file_.metadata().end()) throw fail(" has no metadata entry " + name);
    return found->second;
  }

  int64_t number_in(const std::string& name, const std::string& text, int64_t least) const {
    const int64_t value = parse_number<int64_t>(text).value_or(-1);
    if (value < least || value > kMostTokens) throw fail(": metadata entry " + name + " is '" + text + "'");
    return value;
  }

  at::Tensor tensor(const std::string& name) const {
    const models::TensorEntry* entry = file_.find(name);
    if (entry == nullptr) throw fail(" holds no tensor " + name);
    if (entry->dtype != models::Dtype::f16 || entry->shape.size() != 4)
      throw fail(": " + name + " is not an fp16 tensor [batch, tokens, heads, head_dim]");
    return copy_of(file_, *entry);
  }

  Error fail(const std::string& what) const { return bad_input(file_.path().string() + what, kCaptureAgain); }

  models::TensorFile file_;
};

void check_shapes(const std::filesystem::path& file, const Capture& capture) {
  const auto sizes = capture.calls.front().q.sizes();
  for (const CapturedCall& call : capture.calls)
    for (const at::Tensor* tensor : {&call.q, &call.k, &call.v})
      if (tensor->sizes() != sizes) throw bad_file(file, "its tensors differ in shape", kCaptureAgain);
  const int64_t tokens = capture.text_tokens + capture.grid.size();
  if (sizes[1] != tokens)
    throw bad_input(file.string() + " holds " + std::to_string(sizes[1]) + " tokens, but grid and text have " +
                        std::to_string(tokens),
                    kCaptureAgain);
}

}  // namespace

Capture read_capture(const std::filesystem::path& file) {
  const Reader reader(file);
  Capture capture{.grid = {.frames = reader.number("frames", 1),
                           .height = reader.number("height", 1),
                           .width = reader.number("width", 1)},
                  .text_tokens = reader.number("text_tokens", 0),
                  .calls = reader.calls()};
  check_shapes(file, capture);
  return capture;
}

at::Tensor places_in(hilbert::TokenOrder order, const Capture& capture) {
  std::vector<int64_t> places = hilbert::permutation(order, capture.grid).order;
  for (int64_t i = 0; i < capture.text_tokens; ++i) places.push_back(capture.grid.size() + i);
  return at::tensor(places);
}

}  // namespace sparsereel::app
