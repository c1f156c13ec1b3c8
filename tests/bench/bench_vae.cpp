// bench_vae FOLDER INPUTS OUTPUT TILED COUNT THREADS: times COUNT decodes of the tensor `latents` in INPUTS
// (safetensors) by a checkpoint's VAE, after one warm-up. Writes the frames to OUTPUT and prints one JSON object. TILED
// is 0 or 1. compare_vae.py calls it.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <fstream>

#include "models/engine/components.h"
#include "models/store/checkpoint/checkpoint.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;

// Returns a line of /proc/self/status in bytes, such as VmRSS (memory now) or VmHWM (the highest value so far).
uint64_t process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

nlohmann::json run(const std::vector<std::string>& arguments) {
  const bool tiled = std::stoi(arguments[3]) != 0;
  const int count = std::stoi(arguments[4]);
  at::set_num_threads(std::stoi(arguments[5]));

  const c10::InferenceMode inference;
  const at::Tensor latents = bench::read_tensor(models::TensorFile(arguments[1]), "latents", at::kFloat);
  models::Component component = models::Checkpoint::open(arguments[0]).component("vae");
  component.config["scaling_factor"] = 1;  // the input is already scaled for diffusers' decode()
  const auto vae = models::load_vae(component, at::kCPU, at::kFloat);
  const uint64_t before = process_memory("VmRSS");
  at::Tensor frames = vae->decode(latents, tiled);
  const uint64_t peak = process_memory("VmHWM") - before;
  frames.reset();  // free one video, because two at once would slow the machine's memory down
  const std::vector<double> seconds = bench::timed(count, [&] { frames = vae->decode(latents, tiled); });
  bench::write_tensor(arguments[2], "frames", frames);
  return {{"seconds", seconds},
          {"peak_bytes", peak},
          {"untiled_estimate", vae->untiled_bytes(latents.size(2), latents.size(3), latents.size(4))}};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::print_json({argv, static_cast<size_t>(argc)},
                           {"FOLDER", "INPUTS", "OUTPUT", "TILED", "COUNT", "THREADS"}, run);
}
