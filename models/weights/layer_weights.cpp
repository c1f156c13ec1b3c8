// Layers that stay on the device, and layers that are read when it is their turn; see also host_layers.h.
#include "models/weights/layer_weights.h"

#include <utility>

#include "models/weights/host_layers.h"

namespace sparsereel::models {
namespace {

class ResidentLayers final : public LayerWeights {
 public:
  void visit(size_t /*layer*/) override {}
};

class FileLayers final : public LayerWeights {
 public:
  FileLayers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers)
      : reader_(std::move(reader)), layers_(std::move(layers)) {}

  void visit(size_t layer) override {
    for (const Slot& slot : layers_[here_]) slot.tensor->reset();
    for (const Slot& slot : layers_[layer]) *slot.tensor = reader_->read(slot.parameter);
    here_ = layer;
    if (layer + 1 == layers_.size()) reader_->check_complete();
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

uint64_t bytes_of(const Slots& slots, at::ScalarType dtype) {
  uint64_t bytes = 0;
  for (const Slot& slot : slots) {
    uint64_t size = c10::elementSize(slot.parameter.fp32 ? at::kFloat : dtype);
    for (const int64_t length : slot.parameter.shape) size *= static_cast<uint64_t>(length);
    bytes += size;
  }
  return bytes;
}

std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence) {
  if (residence == Residence::file) return std::make_unique<FileLayers>(std::move(reader), std::move(layers));
  std::unique_ptr<HostLayers> host;
  if (residence == Residence::host) host = std::make_unique<HostLayers>(reader->device());
  for (Slots& layer : layers) {
    for (const Slot& slot : layer) *slot.tensor = reader->read(slot.parameter);
    if (host) host->take(layer);
  }
  if (host) return host;
  return std::make_unique<ResidentLayers>();
}

}  // namespace sparsereel::models
