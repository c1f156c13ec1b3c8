// Writes a weight file for tests, and opens it as a component.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/store/checkpoint/component.h"
#include "models/store/checkpoint/safetensors.h"

namespace sparsereel::models {

/// Opens the file that write() has written to the folder.
inline Component open_component(const std::filesystem::path& folder) {
  Component component;
  component.class_name = "CogVideoXTransformer3DModel";
  component.origin = folder;
  component.config_file = (folder / "config.json").string();
  component.files.push_back(std::make_shared<TensorFile>(folder / "model.safetensors"));
  for (const TensorEntry& entry : component.files[0]->entries()) component.tensors[entry.name] = {0, &entry};
  return component;
}

inline Dtype stored_as(at::ScalarType dtype) {
  if (dtype == at::kHalf) return Dtype::f16;
  if (dtype == at::kBFloat16) return Dtype::bf16;
  if (dtype == at::kDouble) return Dtype::f64;
  if (dtype == at::kFloat8_e4m3fn) return Dtype::f8_e4m3;
  return dtype == at::kByte ? Dtype::u8 : Dtype::f32;
}

/// Writes tensors to the file that open_component() opens.
inline void write(const std::filesystem::path& folder, const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    views.push_back({name,
                     stored_as(tensor.scalar_type()),
                     tensor.sizes().vec(),
                     {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  write_safetensors(folder / "model.safetensors", views);
}

/// Returns true if the tensor's memory is part of the mapped file, so that it was not copied.
inline bool inside(const at::Tensor& tensor, const Component& component) {
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  const auto* begin = static_cast<const std::byte*>(component.files[0]->mapping().get());
  return data >= begin && data < begin + std::filesystem::file_size(component.files[0]->path());
}

}  // namespace sparsereel::models
