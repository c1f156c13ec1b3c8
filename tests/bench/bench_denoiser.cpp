// bench_denoiser FOLDER INPUTS OUTPUT MODE TOKEN_ORDER TOPK COUNT THREADS: times COUNT forwards of a checkpoint's
// denoiser on the latents, text and timesteps in INPUTS (safetensors), writes the last prediction to OUTPUT and prints
// one JSON object. compare_denoiser.py calls it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "hilbert/error.h"
#include "models/checkpoint/weights.h"
#include "models/dit/dit.h"

namespace {

using namespace sparsereel;

at::Tensor read_tensor(const models::SafetensorsFile& file, const std::string& name, at::ScalarType dtype) {
  const models::TensorEntry* entry = file.find(name);
  if (entry == nullptr)
    throw bad_input(file.path().string() + " holds no tensor " + name, "let compare_denoiser.py write it");
  return at::from_blob(const_cast<std::byte*>(file.data(*entry).data()), entry->shape, dtype).clone();
}

nlohmann::json run(std::span<char*> arguments) {
  const std::string folder = arguments[1], inputs = arguments[2], output = arguments[3];
  models::AttentionRun attention;
  attention.mode = attention::parse_mode(arguments[4]);
  attention.token_order = hilbert::parse_token_order(arguments[5]);
  attention.policy.defaults.topk = std::stod(arguments[6]);
  const int count = std::stoi(arguments[7]);
  at::set_num_threads(std::stoi(arguments[8]));

  const c10::InferenceMode inference;
  const models::SafetensorsFile file(inputs);
  const at::Tensor latents = read_tensor(file, "latents", at::kFloat), text = read_tensor(file, "text", at::kFloat),
                   timesteps = read_tensor(file, "timesteps", at::kLong);
  const models::Component component = models::ModelFolder::open(folder).component("transformer");
  const auto dit = models::load_cogvideox_dit(component, at::kCPU, at::kFloat);
  at::Tensor prediction =
      dit->forward(latents, text, timesteps, attention);  // warms up: position tables, code generation
  attention.per_layer.clear();
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    prediction = dit->forward(latents, text, timesteps, attention);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  prediction = prediction.contiguous();
  models::write_safetensors(
      output,
      {{"prediction", models::Dtype::f32, prediction.sizes().vec(),
        std::as_bytes(std::span(prediction.const_data_ptr<float>(), static_cast<size_t>(prediction.numel())))}});
  return {{"seconds", seconds},
          {"attention_seconds", attention.statistics.seconds / count},
          {"sparsity", attention.statistics.sparsity()},
          {"kernel", attention.kernel}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) {
    std::cerr << "usage: bench_denoiser FOLDER INPUTS OUTPUT MODE TOKEN_ORDER TOPK COUNT THREADS\n";
    return 2;
  }
  try {
    std::cout << run(std::span(argv, static_cast<size_t>(argc))) << "\n";
  } catch (const Error& error) {
    std::cerr << error.what() << "\n" << error.remedy() << "\n";
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
