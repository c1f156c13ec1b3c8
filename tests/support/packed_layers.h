// Makes layers with packed 8-bit weights and LoRAs, and the same layers with fp32 weights.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "models/layers/linear.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/weights/layer_weights.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::test {

/// Writes the tensors to a safetensors file.
inline void write_tensors(const std::filesystem::path& file,
                          const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<models::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const models::Dtype dtype = tensor.scalar_type() == at::kChar    ? models::Dtype::i8
                                : tensor.scalar_type() == at::kFloat ? models::Dtype::f32
                                                                     : models::Dtype::bf16;
    views.push_back(
        {name, dtype, tensor.sizes().vec(), {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  models::write_safetensors(file, views);
}

/// Layer i joins two matrices, q and k, in one product. Each is [outs[i], in] in int8 with one scale per row. Matrix q
/// has a LoRA in fp32; k has one in bf16 and one in fp32.
class PackedLayers {
 public:
  PackedLayers(std::vector<int64_t> outs, int64_t in) : outs_(std::move(outs)), in_(in) {
    at::manual_seed(11);
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (size_t i = 0; i < outs_.size(); ++i)
      for (const char* matrix : {".q", ".k"}) {
        const std::string name = name_of(i) + matrix;
        const at::Tensor steps = at::randint(-127, 128, {outs_[i], in_}, at::kChar);
        const at::Tensor scale = at::rand({outs_[i]}) * 0.001 + 0.0005;
        tensors.emplace_back("packed/" + name + ".weight", steps);
        tensors.emplace_back("packed/" + name + ".weight_scale", scale);
        tensors.emplace_back("plain/" + name + ".weight", steps.to(at::kFloat) * scale.unsqueeze(1));
        tensors.emplace_back(name + ".up", at::randn({outs_[i], 4}) * 0.1);
        tensors.emplace_back(name + ".down", at::randn({4, in_}) * 0.1);
        tensors.emplace_back(name + ".up16", (at::randn({outs_[i], 8}) * 0.1).to(at::kBFloat16));
        tensors.emplace_back(name + ".down16", (at::randn({8, in_}) * 0.1).to(at::kBFloat16));
      }
    write_tensors(folder_ / "layers.safetensors", tensors);
    open(packed, "packed/");
    open(plain, "plain/");
  }

  models::Component packed, plain;

  std::vector<models::Slots> list(std::vector<models::Linear>& layers) const {
    layers.resize(outs_.size());
    std::vector<models::Slots> slots;
    for (size_t i = 0; i < outs_.size(); ++i)
      slots.push_back(models::slots_of([&](const models::Visit& visit) {
        layers[i].packed_weights(visit, {name_of(i) + ".q", name_of(i) + ".k"}, outs_[i], in_, /*has_bias=*/false);
      }));
    return slots;
  }

 private:
  static std::string name_of(size_t layer) { return "layer." + std::to_string(layer); }

  void open(models::Component& component, const std::string& prefix) const {
    const auto file = std::make_shared<models::TensorFile>(folder_ / "layers.safetensors");
    component.files = {file};
    for (const models::TensorEntry& entry : file->entries())
      if (entry.name.starts_with(prefix)) component.tensors[entry.name.substr(prefix.size())] = {0, &entry};
    const auto delta = [&](const std::string& name, const char* end, double scale) {
      return models::WeightDelta{
          .file = file, .up = file->find(name + ".up" + end), .down = file->find(name + ".down" + end), .scale = scale};
    };
    for (size_t i = 0; i < outs_.size(); ++i) {
      const std::string q = name_of(i) + ".q", k = name_of(i) + ".k";
      component.deltas[q + ".weight"] = {delta(q, "", 0.7)};
      component.deltas[k + ".weight"] = {delta(k, "16", -1.3), delta(k, "", 2)};
    }
  }

  TemporaryFolder folder_;
  std::vector<int64_t> outs_;
  int64_t in_;
};

}  // namespace sparsereel::test
