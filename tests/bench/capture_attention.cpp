// capture_attention MODEL PROMPT STEPS OUT.safetensors [LAYERS [AT_STEPS [SIZE]]]: saves q, k and v of a real run with
// full attention and seed 42. They are taken after norm and rotary embedding, with the video tokens in native order
// (see app/lab/measure/captured.h). LAYERS and AT_STEPS are comma-separated lists that count from 0 (default: the
// first, the middle and the last). SIZE is both width and height in pixels (default: the model's).
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "attention/prologue.h"
#include "models/engine/pipeline.h"
#include "models/request/attention_run.h"
#include "models/request/run.h"
#include "models/store/checkpoint/checkpoint.h"
#include "tests/bench/program.h"
#include "tests/support/callback_observer.h"
#include "tests/support/capture_file.h"

namespace {

using namespace sparsereel;

/// Parses a comma-separated list of numbers below `count`. "" means 0, the middle and the last number.
std::vector<int64_t> parse_list(const std::string& text, int64_t count, const std::string& what) {
  std::vector<int64_t> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) numbers.push_back(std::atoll(part.c_str()));
  if (numbers.empty()) numbers = {0, count / 2, count - 1};
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.front() < 0 || numbers.back() >= count)
    throw bad_input(what + " " + text + " go beyond 0 to " + std::to_string(count - 1), "name fewer of them");
  return numbers;
}

int64_t count_layers(const std::string& model) {
  return models::Checkpoint::open(model).config("transformer").at("num_layers").get<int64_t>();
}

int run(const std::vector<std::string>& arguments) {
  const auto argument = [&](size_t i) { return i < arguments.size() ? arguments[i] : std::string(); };
  models::Request request;
  request.prompt = arguments[1];
  request.num_inference_steps = std::atoll(arguments[2].c_str());
  request.token_order = hilbert::TokenOrder::native;
  request.attention_mode = attention::Mode::full;
  if (!argument(6).empty()) request.width = request.height = std::atoll(argument(6).c_str());
  const std::vector<int64_t> layers = parse_list(argument(4), count_layers(arguments[0]), "layers"),
                             steps = parse_list(argument(5), *request.num_inference_steps, "steps");
  const auto wanted = [](const std::vector<int64_t>& list, int64_t x) {
    return std::binary_search(list.begin(), list.end(), x);
  };

  app::Capture capture;
  test::CallbackObserver observer;
  models::Run run;
  run.observer = &observer;
  observer.on_attention_call = [&](const models::AttentionCall& call) {
    if (!wanted(layers, call.layer) || !wanted(steps, call.step)) return;
    const auto [q, k] = attention::apply_prologue(call.context.prologue, call.q, call.k, call.context.text_tokens);
    capture.grid = call.grid;
    capture.text_tokens = call.context.text_tokens;
    capture.calls.push_back({.step = call.step, .layer = call.layer, .q = q, .k = k, .v = call.v.clone()});
  };
  const auto pipeline = models::Pipeline::open(arguments[0], "auto", "auto");
  pipeline->generate(request, {.decode = false}, run);
  app::write_capture(arguments[3], capture,
                     {{"model", arguments[0]}, {"prompt", arguments[1]}, {"steps", arguments[2]}, {"seed", "42"}});
  std::printf("%zu calls of q, k and v [%lld, %lld, %lld, %lld]\n", capture.calls.size(),
              static_cast<long long>(capture.calls[0].q.size(0)), static_cast<long long>(capture.calls[0].q.size(1)),
              static_cast<long long>(capture.calls[0].q.size(2)), static_cast<long long>(capture.calls[0].q.size(3)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 8) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT STEPS OUT.safetensors [LAYERS [AT_STEPS [SIZE]]]\n", argv[0]);
    return 2;
  }
  return sparsereel::bench::guarded([&] { return run({argv + 1, argv + argc}); });
}
