// Mapped files are aliased where dtype and device allow it, copied and converted once otherwise; made tensors are drawn
// anew each time.
#include "models/weights/tensor_source.h"

#include <ATen/ATen.h>

#include "models/weights/random_weights.h"

namespace sparsereel::models {
namespace {

/// A tensor over the mapping's own bytes; it keeps the mapping alive. Read-only memory.
at::Tensor alias(const TensorFile& file, const TensorEntry& entry, at::ScalarType stored) {
  void* data = const_cast<std::byte*>(file.data(entry).data());
  return at::from_blob(
      data, entry.shape, [mapping = file.mapping()](void*) {}, at::TensorOptions().dtype(stored));
}

class MappedTensors final : public TensorSource {
 public:
  MappedTensors(const Component& component, at::Device device)
      : component_(component), device_(device), uploader_(device) {}

  std::vector<StoredTensor> list() const override {
    std::vector<StoredTensor> all;
    for (const auto& [name, place] : component_.tensors)
      all.push_back({name, place.second->shape, place.second->dtype});
    return all;
  }
  std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& /*wanted*/) const override {
    const auto found = component_.tensors.find(name);
    if (found == component_.tensors.end()) return std::nullopt;
    return StoredTensor{name, found->second.second->shape, found->second.second->dtype};
  }
  at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) override {
    const auto& [file, entry] = component_.tensors.at(tensor.name);
    return read_tensor(*component_.files[file], *entry, dtype, device_, uploader_);
  }
  void release(const StoredTensor& tensor) override {
    const auto& [file, entry] = component_.tensors.at(tensor.name);
    component_.files[file]->release(*entry);
  }

 private:
  const Component& component_;
  at::Device device_;
  Uploader uploader_;
};

/// As if stored in the run's dtype: read in another one they are the same model.
class RandomTensors final : public TensorSource {
 public:
  RandomTensors(uint64_t seed, at::Device device, at::ScalarType dtype) : seed_(seed), device_(device), dtype_(dtype) {}

  std::vector<StoredTensor> list() const override { return {}; }
  std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& wanted) const override {
    const Dtype dtype = dtype_ == at::kFloat ? Dtype::f32 : dtype_ == at::kHalf ? Dtype::f16 : Dtype::bf16;
    return StoredTensor{name, wanted, dtype};
  }
  at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) override {
    return random_weight(tensor.name, tensor.shape, device_, dtype_, seed_).to(dtype);
  }

 private:
  uint64_t seed_;
  at::Device device_;
  at::ScalarType dtype_;
};

}  // namespace

std::unique_ptr<TensorSource> open_source(const Component& component, at::Device device, at::ScalarType run) {
  if (component.random_seed) return std::make_unique<RandomTensors>(*component.random_seed, device, run);
  return std::make_unique<MappedTensors>(component, device);
}

std::optional<at::ScalarType> readable(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return at::kDouble;
    case Dtype::f32:
      return at::kFloat;
    case Dtype::f16:
      return at::kHalf;
    case Dtype::bf16:
      return at::kBFloat16;
    case Dtype::f8_e4m3:
      return at::kFloat8_e4m3fn;
    default:
      return std::nullopt;
  }
}

at::ScalarType stored_dtype(const Component& component) {
  at::ScalarType stored = at::kBFloat16;
  for (const auto& [name, place] : component.tensors) {
    const auto dtype = readable(place.second->dtype);
    if (dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat) return *dtype;
    if (dtype == at::kDouble) stored = at::kFloat;
  }
  return stored;
}

/// On the device, and there converted: converting first would make a second copy on the host.
at::Tensor read_tensor(const TensorFile& file, const TensorEntry& entry, at::ScalarType dtype, at::Device device,
                       Uploader& uploader) {
  const at::ScalarType stored = *readable(entry.dtype);
  const at::Tensor source = alias(file, entry, stored);
  const bool aligned = reinterpret_cast<uintptr_t>(source.const_data_ptr()) % size_of(entry.dtype) == 0;
  file.prefetch(entry);
  if (device.is_cpu() && stored == dtype && aligned) return source;
  at::Tensor result = device.is_cpu() ? at::empty(entry.shape, dtype).copy_(source)
                                      : uploader.upload(file.data(entry)).view(stored).view(entry.shape).to(dtype);
  file.release(entry);
  return result;
}

}  // namespace sparsereel::models
