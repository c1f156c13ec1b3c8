// Imitates the checkpoints of published models in tests. Tensors have the published names and shapes, but hold zeros
// and take no disk space.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::test {

/// A component with the tensor names, shapes and dtype of a published one. All its tensors overlap in one file of
/// zeros.
class ZeroComponent {
 public:
  /// `model` has "config", and "rest", a map from names to shapes. A transformer also has "block", the same map for the
  /// tensors of one layer, and may have "blocks", the number of equal layers (default: the config's num_layers). Layers
  /// that differ are in "rest". `blocks` is the part of a tensor's name before the layer's number.
  ZeroComponent(const std::string& class_name, const std::string& blocks, const nlohmann::json& model) {
    component.class_name = class_name;
    component.origin = "zeros";
    component.config = model.at("config");
    component.config_file = "zeros/config.json";
    for (const auto& [name, shape] : model.at("rest").items()) add(name, shape);
    const int64_t all = model.contains("block") ? model.at("config").at("num_layers").get<int64_t>() : 0;
    const int64_t layers = model.value("blocks", all);
    for (int64_t i = 0; i < layers; ++i) {
      for (const auto& [name, shape] : model.at("block").items())
        add(blocks + "." + std::to_string(i) + "." + name, shape);
    }
    write_file();
  }
  ~ZeroComponent() { std::filesystem::remove(path_); }
  ZeroComponent(const ZeroComponent&) = delete;
  ZeroComponent& operator=(const ZeroComponent&) = delete;

  void add(const std::string& name, const std::vector<int64_t>& shape) {
    const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    entries_.push_back({.name = name,
                        .dtype = models::Dtype::bf16,
                        .shape = shape,
                        .offset = kHeaderBytes,
                        .bytes = static_cast<size_t>(elements) * 2});
    largest_ = std::max(largest_, entries_.back().bytes);
    component.tensors[name] = {0, &entries_.back()};
  }

  models::Component component;

 private:
  static constexpr size_t kHeaderBytes = 256;

  void write_file() {
    std::string header = R"({"zeros":{"dtype":"U8","shape":[)" + std::to_string(largest_) + R"(],"data_offsets":[0,)" +
                         std::to_string(largest_) + "]}}";
    header.resize(kHeaderBytes - 8, ' ');
    const uint64_t length = header.size();
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << header;
    file.close();
    std::filesystem::resize_file(path_,
                                 kHeaderBytes + largest_);  // the data is a hole in the file, which reads as zeros
    component.files = {std::make_shared<models::TensorFile>(path_)};
  }

  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / ("zeros-" + std::to_string(::getpid()) + ".safetensors");
  std::deque<models::TensorEntry> entries_;
  size_t largest_ = 0;
};

using Load = std::function<void(const models::Component& component)>;

inline void load_transformer(const models::Component& component) {
  models::load_transformer(component, at::kMeta, at::kBFloat16);
}

inline void load_vae(const models::Component& component) {
  models::load_vae(component, at::kMeta, at::kBFloat16);
}

inline void load_encoder(const models::Component& component) {
  models::load_vae(component, at::kMeta, at::kBFloat16, models::VaeParts::encoder);
}

/// Returns the message of the error that loading throws; empty if it throws none.
inline std::string load_complaint(const models::Component& component, const Load& load = load_transformer) {
  const c10::InferenceMode inference;
  try {
    load(component);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
  return "";
}

/// Expects a published transformer to load. Expects loading to fail if a tensor is missing, or if a tensor of a layer
/// beyond the last one is there. Expects any other additional tensor to be ignored.
inline void expect_exact_names(ZeroComponent& zeros, const Load& load = load_transformer) {
  EXPECT_EQ(load_complaint(zeros.component, load), "");
  const models::TensorEntry* entry = zeros.component.tensors["proj_out.bias"].second;
  zeros.component.tensors.erase("proj_out.bias");
  EXPECT_NE(load_complaint(zeros.component, load).find("proj_out.bias"), std::string::npos);
  zeros.component.tensors["proj_out.bias"] = {0, entry};
  zeros.add("proj_out.extra", {3});
  EXPECT_EQ(load_complaint(zeros.component, load), "") << "a stranger is left out";
  std::string more;  // a weight of layer 99, which the model does not have
  for (const auto& [name, place] : zeros.component.tensors)
    if (const size_t number = name.find(".0."); more.empty() && number != std::string::npos)
      more = std::string(name).replace(number, 3, ".99.");
  zeros.add(more, {3});
  EXPECT_NE(load_complaint(zeros.component, load).find("1 unexpected: \"" + more), std::string::npos);
}

}  // namespace sparsereel::test
