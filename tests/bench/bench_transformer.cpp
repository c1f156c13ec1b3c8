// bench_transformer FOLDER INPUTS OUTPUT MODE TOKEN_ORDER TOPK COUNT THREADS: times COUNT forwards of a checkpoint's
// transformer on the latents, text and timesteps in INPUTS (safetensors). Writes the last prediction to OUTPUT and
// prints one JSON object. compare_transformer.py calls it.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "models/engine/components.h"
#include "models/request/attention_run.h"
#include "models/store/checkpoint/checkpoint.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;

nlohmann::json run(const std::vector<std::string>& arguments) {
  models::AttentionRun attention;
  attention.mode = attention::parse_mode(arguments[3]);
  attention.token_order = hilbert::parse_token_order(arguments[4]);
  attention.policy.defaults.topk = std::stod(arguments[5]);
  const int count = std::stoi(arguments[6]);
  at::set_num_threads(std::stoi(arguments[7]));

  const c10::InferenceMode inference;
  const models::TensorFile file(arguments[1]);
  const at::Tensor latents = bench::read_tensor(file, "latents", at::kFloat),
                   text = bench::read_tensor(file, "text", at::kFloat),
                   timesteps = bench::read_tensor(file, "timesteps", at::kLong);
  const models::Component component = models::Checkpoint::open(arguments[0]).component("transformer");
  const auto transformer = models::load_transformer(component, at::kCPU, at::kFloat);
  at::Tensor prediction =
      transformer->forward(latents, {text}, timesteps, attention);  // warms up: position tables, code generation
  attention.per_layer.clear();
  const std::vector<double> seconds =
      bench::timed(count, [&] { prediction = transformer->forward(latents, {text}, timesteps, attention); });
  bench::write_tensor(arguments[2], "prediction", prediction);
  return {{"seconds", seconds},
          {"attention_seconds", attention.statistics.seconds / count},
          {"sparsity", attention.statistics.sparsity()},
          {"kernel", attention.kernel}};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::print_json({argv, static_cast<size_t>(argc)},
                           {"FOLDER", "INPUTS", "OUTPUT", "MODE", "TOKEN_ORDER", "TOPK", "COUNT", "THREADS"}, run);
}
