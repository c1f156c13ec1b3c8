// bench_lora MODEL LAYERS RANK DEVICE WEIGHTS REPETITIONS: loads a published transformer (its names and shapes, all
// zeros) of LAYERS blocks without a LoRA and with one, in turns, and prints the seconds. The LoRA has random numbers
// for each linear layer of the blocks, in a file in the system's temporary folder.
// WEIGHTS is bf16, fp8, q8_0, q4_k or q6_k. For the last three it times instead how long the packed matrices of LAYERS
// blocks take to unpack, as in every forward, without and with a LoRA. A product follows each matrix, so that a GPU's
// host has time to enqueue the next ones.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "app/lab/measure/timing.h"
#include "models/engine/components.h"
#include "models/layers/linear.h"
#include "models/layers/unpack.h"
#include "models/store/weights/device.h"
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

/// Writes a LoRA for every matrix of the blocks to a file at `path`, and returns its changes to the weights.
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

/// Returns the matrices of a block in the format `packed`, filled with random bytes. If `of_lora` is given, they have a
/// LoRA of this dtype.
std::vector<models::Linear> packed_block(const nlohmann::json& block, models::Dtype packed, at::Device device,
                                         int64_t rank, std::optional<at::ScalarType> of_lora) {
  std::vector<models::Linear> layers;
  for (const auto& [name, shape] : block.items()) {
    if (!name.ends_with(".weight") || shape.size() != 2) continue;
    const auto rows = shape[0].get<int64_t>(), columns = shape[1].get<int64_t>();
    models::StoredRows stored = {packed, rows, columns, 0};
    if (of_lora) {
      const models::LowRank delta = {at::randn({rows, rank}).to(device, *of_lora),
                                     at::randn({rank, columns}).to(device, *of_lora), 0.5};
      stored.deltas = {*of_lora == at::kFloat && !device.is_cpu() ? models::in_bf16(delta) : delta};
    }
    const int64_t bytes = rows * models::packed_bytes(packed, columns);
    layers.push_back({.weight = at::randint(0, 256, {bytes}, at::TensorOptions().dtype(at::kByte).device(device)),
                      .rows = {std::move(stored)}});
  }
  return layers;
}

int time_unpacking(const nlohmann::json& names, const std::vector<std::string>& arguments, models::Dtype packed) {
  const at::Device device = models::resolve_device(arguments[3]);
  const int64_t layers = std::stoll(arguments[1]), rank = std::stoll(arguments[2]);
  constexpr int64_t kTokens = 8192;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  const auto columns_of = [](const models::Linear& layer) {
    return layer.rows.empty() ? layer.weight.size(1) : layer.rows[0].columns;
  };
  std::map<int64_t, at::Tensor> inputs;
  const auto time_with = [&](const std::vector<models::Linear>& block) {
    const auto run_all = [&] {
      for (int64_t i = 0; i < layers; ++i)
        for (const models::Linear& layer : block) {
          at::Tensor& x = inputs[columns_of(layer)];
          if (!x.defined()) x = at::randn({kTokens, columns_of(layer)}, options);
          models::linear(x, layer);
        }
    };
    run_all();  // warms up
    std::vector<double> ms;
    for (int i = 0; i < std::stoi(arguments[5]); ++i) ms.push_back(app::milliseconds_of(device, run_all));
    return app::spread(ms).median;
  };
  const auto block_with = [&](std::optional<at::ScalarType> of_lora) {
    return packed_block(names.at("block"), packed, device, rank, of_lora);
  };
  std::vector<models::Linear> unpacked = block_with({});
  for (models::Linear& layer : unpacked) layer = layer.in(at::kBFloat16);
  const double products = time_with(unpacked);
  const std::pair<const char*, std::optional<at::ScalarType>> kinds[] = {
      {"without a LoRA", {}}, {"with one in bf16", at::kBFloat16}, {"with one in fp32", at::kFloat}};
  for (const auto& [words, of_lora] : kinds)
    std::printf("%lld blocks are unpacked in %.2f ms %s\n", static_cast<long long>(layers),
                time_with(block_with(of_lora)) - products, words);
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const Model& model = kModels.at(arguments[0]);
  nlohmann::json names = models::read_json(fs::path(SPARSEREEL_TEST_DATA) / model.names);
  names = names.at(model.size);
  for (const auto& [name, packed] : {std::pair("q8_0", models::Dtype::q8_0), std::pair("q4_k", models::Dtype::q4_k),
                                     std::pair("q6_k", models::Dtype::q6_k)})
    if (arguments[4] == name) return time_unpacking(names, arguments, packed);
  const at::Device device = models::resolve_device(arguments[3]);
  const models::WeightFormat format(at::kBFloat16, arguments[4] == "fp8");
  names["config"]["num_layers"] = std::stoll(arguments[1]);
  test::ZeroComponent zeros(model.class_name, model.blocks, names);
  const test::TemporaryFolder folder;
  const fs::path file = folder / "lora.safetensors";
  const models::WeightDeltas deltas = write_lora(zeros.component, model.blocks, std::stoll(arguments[2]), file);
  std::printf("%.2f GiB in bf16, a LoRA of %zu layers, %.0f MB\n",
              static_cast<double>(models::load_transformer(zeros.component, at::kMeta, at::kBFloat16)->weight_bytes()) /
                  (1 << 30),
              deltas.size(), static_cast<double>(fs::file_size(file)) / 1e6);
  std::map<bool, std::vector<double>> seconds;
  for (int i = 0; i < 2 * (std::stoi(arguments[5]) + 1); ++i) {
    const bool with = i % 2 == 1;
    zeros.component.deltas = with ? deltas : models::WeightDeltas();
    const double ms = app::milliseconds_of(device, [&] { models::load_transformer(zeros.component, device, format); });
    if (i > 1) seconds[with].push_back(ms / 1000);  // the first two runs only warm up
  }
  const double without = app::spread(seconds[false]).median, with = app::spread(seconds[true]).median;
  std::printf("loads in %.2f s without, in %.2f s with it: %.2f s more\n", without, with, with - without);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7 || !kModels.contains(argv[1])) {
    std::fprintf(stderr,
                 "usage: bench_lora cogvideox-2b|cogvideox-5b|wan-1.3b|wan-14b LAYERS RANK DEVICE "
                 "bf16|fp8|q8_0|q4_k|q6_k REPETITIONS\n");
    return 2;
  }
  return bench::guarded([&] { return run({argv + 1, argv + argc}); });
}
