// Collects a module's tensors, and reads layers that stay in the file.
#include "models/store/weights/layer_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace sparsereel::models {
namespace {

constexpr int64_t kAlignment = 256;  // bytes; at least the alignment of tensors that libtorch allocates

class FileLayers final : public LayerWeights {
 public:
  FileLayers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers)
      : reader_(std::move(reader)), layers_(std::move(layers)) {}

  void visit(size_t layer) override {
    release();
    for (const Slot& slot : layers_[layer]) reader_->load(*slot.tensor, slot.parameter);
    here_ = layer;
    if (layer + 1 == layers_.size()) reader_->check_complete();
  }
  void release() override {
    for (at::Tensor* tensor : tensors_of(layers_[here_])) tensor->reset();
  }

 private:
  std::shared_ptr<WeightReader> reader_;
  std::vector<Slots> layers_;
  size_t here_ = 0;  // the layer that was visited last
};

}  // namespace

Slots slots_of(const std::function<void(const Visit&)>& list) {
  Slots slots;
  list([&](at::Tensor& tensor, const Parameter& parameter) { slots.push_back({&tensor, parameter}); });
  return slots;
}

std::vector<at::Tensor*> tensors_of(const Slots& slots) {
  std::vector<at::Tensor*> tensors;
  for (const auto& [tensor, parameter] : slots) {
    tensors.push_back(tensor);
    if (parameter.scale != nullptr && parameter.scale->defined()) tensors.push_back(parameter.scale);
    if (parameter.rows == nullptr) continue;
    for (StoredRows& rows : *parameter.rows) {
      if (rows.column_scale.defined()) tensors.push_back(&rows.column_scale);
      for (LowRank& delta : rows.deltas) tensors.insert(tensors.end(), {&delta.up, &delta.down});
    }
  }
  return tensors;
}

uint64_t bytes_of(const Slots& slots, const WeightReader& reader) {
  uint64_t bytes = 0;
  for (const Slot& slot : slots) bytes += reader.bytes(slot.parameter);
  return bytes;
}

bool rounds_again(const Slots& slots, const WeightReader& reader) {
  return std::ranges::any_of(slots, [&](const Slot& slot) { return reader.rounds_again(slot.parameter); });
}

Packing::Packing(const std::vector<at::Tensor*>& tensors) {
  for (const at::Tensor* tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor->nbytes());
    places_.push_back(
        {.offset = bytes_, .bytes = bytes, .sizes = tensor->sizes().vec(), .dtype = tensor->scalar_type()});
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

at::Tensor Packing::view(const at::Tensor& memory, size_t index) const {
  const TensorSlot& place = places_[index];
  return memory.narrow(0, place.offset, place.bytes).view(place.dtype).view(place.sizes);
}

std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence) {
  if (residence == Residence::file) return std::make_unique<FileLayers>(std::move(reader), std::move(layers));
  return load_layers(std::move(reader), std::move(layers),
                     residence == Residence::host ? Streaming::all() : Streaming{});
}

}  // namespace sparsereel::models
