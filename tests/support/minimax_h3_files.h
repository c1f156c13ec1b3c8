// Writes the small MiniMax-H3 transformer as other programs would: with the authors' names, fused layers and prefixes.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/families/minimax_h3/fused_names.h"
#include "models/families/minimax_h3/loaders.h"
#include "models/families/minimax_h3/names.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/weights/weights.h"
#include "tests/support/minimax_h3_cases.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::test {

using NamedTensors = std::map<std::string, at::Tensor>;

inline ParityCase minimax_h3_case(const std::string& name = "both") {
  return {&minimax_h3(), name, read_data("minimax_h3/dit_cases.json").at(name)};
}

/// Returns the weights of a small transformer under diffusers' names, in fp32. The weights of queries and keys are
/// multiplied by `queries_and_keys`. The output stays the same, because the model normalizes queries and keys.
inline NamedTensors minimax_h3_weights(const ParityCase& one, double queries_and_keys = 1) {
  const Golden golden("minimax_h3/dit_golden");
  NamedTensors weights;
  for (const auto& [name, key] : one.content["weights"].items()) {
    at::Tensor tensor = golden[key.get<std::string>()].to(at::kFloat);
    const bool is_normed = name.find("to_q") != std::string::npos || name.find("to_k") != std::string::npos;
    weights[name] = is_normed ? tensor * queries_and_keys : tensor;
  }
  return weights;
}

/// Returns the same weights under the authors' names, with the rows of each fused layer in this order.
inline NamedTensors in_authors_names(const NamedTensors& weights, models::FusedRows order, int64_t head_dim) {
  const models::NameMap names = models::minimax_h3_transformer_part().names.others.front();
  NamedTensors renamed;
  for (const auto& [name, tensor] : weights) {
    if (const size_t at = name.find("to_q."); at != std::string::npos) {
      const auto projection = [&](const char* kind) {
        return weights.at(std::string(name).replace(at, 4, kind)).unflatten(0, {-1, head_dim});
      };
      const std::vector<at::Tensor> kinds = {projection("to_q"), projection("to_k"), projection("to_v")};
      const at::Tensor rows = order == models::FusedRows::by_kind ? at::cat(kinds) : at::stack(kinds, 1).flatten(0, 1);
      renamed[names.second(name)] = rows.flatten(0, 1).contiguous();
    } else if (name.find(".ff.net.0.proj.") != std::string::npos) {
      const std::vector<at::Tensor> halves = tensor.chunk(2);
      renamed[names.second(name)] = at::cat({halves[1], halves[0]});
    } else if (name.find("to_k.") == std::string::npos && name.find("to_v.") == std::string::npos) {
      renamed[names.second(name)] = tensor;
    }
  }
  return renamed;
}

inline models::Dtype dtype_in_file(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return models::Dtype::f16;
    case at::kBFloat16:
      return models::Dtype::bf16;
    case at::kFloat8_e4m3fn:
      return models::Dtype::f8_e4m3;
    case at::kChar:
      return models::Dtype::i8;
    case at::kByte:
      return models::Dtype::u8;
    default:
      return models::Dtype::f32;
  }
}

inline std::filesystem::path write_tensors(const std::filesystem::path& file, const NamedTensors& tensors,
                                           const std::string& prefix = "") {
  std::vector<models::TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back({prefix + name,
                     dtype_in_file(tensor),
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  models::write_safetensors(file, views);
  return file;
}

/// Writes a shard and its index, and returns the index.
inline std::filesystem::path write_index(const std::filesystem::path& folder, const NamedTensors& tensors) {
  const std::string shard = "model-00001-of-00001.safetensors";
  write_tensors(folder / shard, tensors);
  nlohmann::json map;
  for (const auto& [name, tensor] : tensors) map[name] = shard;
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  std::ofstream(index) << nlohmann::json{{"weight_map", map}};
  return index;
}

/// Opens a transformer's weight file, or the index of its shards, with the config of this case's small transformer.
inline models::Component open_minimax_h3(const std::filesystem::path& file, const ParityCase& one) {
  static const models::Part part =
      models::minimax_h3_transformer_part();  // static, because the component refers to its names
  models::Component component = component_of(models::open_weights(file), part);
  component.config = one.content["config"];
  component.config_file = "small/config.json";
  return component;
}

/// Runs the forward pass of the case.
inline models::Prediction predict(const models::Component& component, const ParityCase& one,
                                  models::WeightFormat format = at::kFloat) {
  models::AttentionRun run;
  run.mode = attention::Mode::full;
  const auto transformer = models::load_minimax_h3_transformer(component, at::kCPU, format);
  return transformer->predict(minimax_h3_input(one, Golden("minimax_h3/dit_golden"), at::kFloat), run);
}

}  // namespace sparsereel::test
