// bench_lora MODEL LAYERS RANK DEVICE WEIGHTS REPETITIONS: loads a published transformer (its names and shapes, all
// zeros) of LAYERS blocks without and with a LoRA of random numbers on each linear layer of its blocks, in turns, and
// prints the seconds. The LoRA is a file beside the system's other temporary ones. WEIGHTS: bf16 or fp8.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "app/measure/timing.h"
#include "models/engine/components.h"
#include "models/weights/device.h"
#include "tests/bench/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/zero_component.h"

namespace {

using namespace sparsereel;
namespace fs = std::filesystem;

struct Model {
  const char *names, *size, *class_name, *blocks;
};

const std::map<std::string, Model> kModels = {
    {"cogvideox-2b", {"dit_names.json", "2b", "CogVideoXTransformer3DModel", "transformer_blocks"}},
    {"cogvideox-5b", {"dit_names.json", "5b", "CogVideoXTransformer3DModel", "transformer_blocks"}},
    {"wan-1.3b", {"wan/dit_names.json", "2.1 1.3b", "WanTransformer3DModel", "blocks"}},
    {"wan-14b", {"wan/dit_names.json", "2.1 14b", "WanTransformer3DModel", "blocks"}}};

/// Deltas for every matrix of the blocks, from a file that is written to the folder.
models::WeightDeltas write_lora(const models::Component& component, const std::string& blocks, int64_t rank,
                                const fs::path& path) {
  std::vector<models::TensorView> views;
  std::vector<at::Tensor> data;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    data.push_back(at::randn(shape, at::kFloat).mul_(0.01).to(at::kBFloat16));
    views.push_back({name,
                     models::Dtype::bf16,
                     shape,
                     {static_cast<const std::byte*>(data.back().const_data_ptr()), data.back().nbytes()}});
  };
  for (const auto& [name, place] : component.tensors) {
    const std::vector<int64_t>& shape = place.second->shape;
    if (!name.starts_with(blocks + ".") || !name.ends_with(".weight") || shape.size() != 2) continue;
    add(name + ".down", {rank, shape[1]});
    add(name + ".up", {shape[0], rank});
  }
  models::write_safetensors(path, views);
  const auto file = std::make_shared<models::TensorFile>(path);
  models::WeightDeltas deltas;
  for (const auto& [name, place] : component.tensors)
    if (const models::TensorEntry* down = file->find(name + ".down"))
      deltas[name] = {{.file = file, .up = file->find(name + ".up"), .down = down, .scale = 1}};
  return deltas;
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const Model& model = kModels.at(arguments[0]);
  const at::Device device = models::resolve_device(arguments[3]);
  const models::WeightFormat format(at::kBFloat16, arguments[4] == "fp8");
  nlohmann::json names = models::read_json(fs::path(SPARSEREEL_TEST_DATA) / model.names);
  names = names.at(model.size);
  names["config"]["num_layers"] = std::stoll(arguments[1]);
  test::ZeroComponent zeros(model.class_name, model.blocks, names);
  const test::TemporaryFolder folder;
  const fs::path file = folder / "lora.safetensors";
  const models::WeightDeltas deltas = write_lora(zeros.component, model.blocks, std::stoll(arguments[2]), file);
  std::printf(
      "%.2f GiB in bf16, a LoRA of %zu layers, %.0f MB\n",
      static_cast<double>(models::load_dit(zeros.component, at::kMeta, at::kBFloat16)->weight_bytes()) / (1 << 30),
      deltas.size(), static_cast<double>(fs::file_size(file)) / 1e6);
  std::map<bool, std::vector<double>> seconds;
  for (int i = 0; i < 2 * (std::stoi(arguments[5]) + 1); ++i) {
    const bool with = i % 2 == 1;
    zeros.component.deltas = with ? deltas : models::WeightDeltas();
    const double ms = app::milliseconds_of(device, [&] { models::load_dit(zeros.component, device, format); });
    if (i > 1) seconds[with].push_back(ms / 1000);  // the first two warm up
  }
  const double without = app::spread(seconds[false]).median, with = app::spread(seconds[true]).median;
  std::printf("loads in %.2f s without, in %.2f s with it: %.2f s more\n", without, with, with - without);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 || !kModels.contains(argv[1])) {
    std::fprintf(stderr,
                 "usage: bench_lora cogvideox-2b|cogvideox-5b|wan-1.3b|wan-14b LAYERS RANK DEVICE bf16|fp8 "
                 "REPETITIONS\n");
    return 2;
  }
  return bench::guarded([&] { return run({argv + 1, argv + argc}); });
}
