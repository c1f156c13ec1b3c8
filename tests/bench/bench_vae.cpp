// bench_vae FOLDER INPUTS OUTPUT TILED COUNT THREADS: times COUNT decodes of the tensor `latents` in INPUTS
// (safetensors) by a checkpoint's VAE, after one that warms up, writes the frames to OUTPUT and prints one JSON object.
// compare_vae.py calls it. TILED is 0 or 1.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "hilbert/error.h"
#include "models/vae/vae.h"

namespace {

using namespace sparsereel;

at::Tensor read_latents(const std::string& path) {
  const models::SafetensorsFile file(path);
  const models::TensorEntry* entry = file.find("latents");
  if (entry == nullptr) throw bad_input(path + " holds no tensor latents", "let compare_vae.py write it");
  return at::from_blob(const_cast<std::byte*>(file.data(*entry).data()), entry->shape, at::kFloat).clone();
}

// A line of /proc/self/status such as VmRSS (memory now) or VmHWM (its highest value), in bytes.
uint64_t process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

nlohmann::json run(std::span<char*> arguments) {
  const bool tiled = std::stoi(arguments[4]) != 0;
  const int count = std::stoi(arguments[5]);
  at::set_num_threads(std::stoi(arguments[6]));

  const c10::InferenceMode inference;
  const at::Tensor latents = read_latents(arguments[2]);
  const models::Component component = models::ModelFolder::open(arguments[1]).component("vae");
  const auto vae = models::load_cogvideox_vae(component, at::kCPU, at::kFloat);
  const uint64_t before = process_memory("VmRSS");
  at::Tensor frames = vae->decode(latents, tiled);
  const uint64_t peak = process_memory("VmHWM") - before;
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    frames.reset();
    const auto start = std::chrono::steady_clock::now();
    frames = vae->decode(latents, tiled);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const std::span values(frames.const_data_ptr<float>(), static_cast<size_t>(frames.numel()));
  models::write_safetensors(arguments[3],
                            {{"frames", models::Dtype::f32, frames.sizes().vec(), std::as_bytes(values)}});
  return {{"seconds", seconds},
          {"peak_bytes", peak},
          {"untiled_estimate", vae->untiled_bytes(latents.size(2), latents.size(3), latents.size(4))}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "usage: bench_vae FOLDER INPUTS OUTPUT TILED COUNT THREADS\n";
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
