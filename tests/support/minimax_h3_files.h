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
#include "models/store/weights/random_weights.h"
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

/// Returns random projections of a few layers, wide enough for every quantized format: two heads of 128, 192 columns.
/// Rows of queries and keys are longer than those of values by this factor.
inline NamedTensors wide_projections(double queries_and_keys) {
  NamedTensors weights;
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = "transformer_blocks." + std::to_string(layer) + ".attn.";
    for (const char* kind : {"to_q", "to_k", "to_v"})
      weights[name + kind + ".weight"] =
          models::random_weight(name + kind, {256, 192}, at::kCPU, at::kFloat, /*seed=*/0) *
          (kind == std::string("to_v") ? 1 : queries_and_keys);
    weights[name + "norm_q.weight"] = at::ones({128});
  }
  return weights;
}

/// Returns the same weights under the authors' names, with fused layers in this order.
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

/// Returns a tensor of these characters, as files hold descriptions of quantized layers.
inline at::Tensor text_tensor(const std::string& text) {
  return at::tensor(at::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(text.data()), text.size()), at::kByte);
}

/// Returns the scales of blocks [rows, blocks] in the tiles of 128 rows and 4 blocks that ComfyUI stores.
inline at::Tensor tiled_scales(const at::Tensor& scales) {
  const int64_t rows = (scales.size(0) + 127) / 128, blocks = (scales.size(1) + 3) / 4;
  const at::Tensor padded =
      at::constant_pad_nd(scales, {0, 4 * blocks - scales.size(1), 0, 128 * rows - scales.size(0)});
  return padded.view({rows, 4, 32, blocks, 4}).permute({0, 3, 2, 1, 4}).reshape({128 * rows, 4 * blocks});
}

/// Returns an fp32 matrix quantized as ComfyUI's "mxfp8", "nvfp4", "convrot_w4a4" or "awq_w4a16", as the tensors of a
/// layer: "weight", "weight_scale" and so on. Codes of nvfp4 are rounded toward 0, and convrot_w4a4 names a rotation
/// that is not applied.
inline NamedTensors quantized_matrix(const at::Tensor& matrix, const std::string& format) {
  const int64_t columns = matrix.size(1), block = format == "mxfp8" ? 32 : format == "nvfp4" ? 16 : 64;
  const at::Tensor blocks = matrix.view({-1, columns / block, block});
  const auto in_nibbles = [&](const at::Tensor& codes, int64_t low, int64_t high) {  // uint8 [rows, columns / 2]
    const at::Tensor pairs = codes.to(at::kInt).bitwise_and(15).view({-1, columns / 2, 2});
    return (pairs.select(2, low) + pairs.select(2, high) * 16).to(at::kByte);
  };
  NamedTensors made = {{"comfy_quant", text_tensor(R"({"format":")" + format + R"("})")}};
  if (format == "mxfp8") {
    const at::Tensor exponents = (blocks.abs().amax(2) / 448).log2().ceil();
    made["weight"] = (blocks / exponents.exp2().unsqueeze(2)).view_as(matrix).to(at::kFloat8_e4m3fn);
    made["weight_scale"] = tiled_scales((exponents + 127).to(at::kByte));
  } else if (format == "nvfp4") {
    constexpr double kFactor = 1.0 / 64;
    const at::Tensor scales = (blocks.abs().amax(2) / 6 / kFactor).to(at::kFloat8_e4m3fn);
    const at::Tensor numbers = blocks / (scales.to(at::kFloat) * kFactor).unsqueeze(2);
    const at::Tensor levels = at::tensor({0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}, at::kFloat);
    const at::Tensor codes = at::bucketize(numbers.abs() + 1e-4, levels, false, true) + numbers.lt(0).mul(8);
    made["weight"] = in_nibbles(codes.view_as(matrix), 1, 0);
    made["weight_scale"] = tiled_scales(scales.view(at::kByte)).view(at::kFloat8_e4m3fn);
    made["weight_scale_2"] = at::full({}, kFactor, at::kFloat);
  } else if (format == "convrot_w4a4") {
    made["comfy_quant"] = text_tensor(R"({"format":"convrot_w4a4","convrot":true,"convrot_groupsize":16})");
    const at::Tensor scales = matrix.abs().amax(1) / 7;
    made["weight"] = in_nibbles((matrix / scales.unsqueeze(1)).round(), 0, 1).view(at::kChar);
    made["weight_scale"] = scales;
  } else {
    const at::Tensor scales = blocks.abs().amax(2) / 7, zeros = scales / 4;
    const at::Tensor numbers = (blocks - zeros.unsqueeze(2)) / scales.unsqueeze(2);
    made["weight"] = in_nibbles(numbers.round().view_as(matrix) + 8, 0, 1).view(at::kChar);
    made["weight_scale"] = scales.t().contiguous();
    made["weight_zeros"] = zeros.t().contiguous();
  }
  return made;
}

/// Returns tensors under the authors' names with the layers of queries, keys and values quantized.
inline NamedTensors quantized_projections(const NamedTensors& tensors, const std::string& format) {
  NamedTensors made = tensors;
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with("qkv_proj.weight")) continue;
    const std::string layer = name.substr(0, name.size() - std::string("weight").size());
    for (const auto& [part, each] : quantized_matrix(tensor, format)) made[layer + part] = each;
  }
  return made;
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
