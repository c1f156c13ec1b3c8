// Layers that stay on the device, and layers that are read for each visit. host_layers.h has the third kind.
#include "models/store/weights/load_layers.h"

#include <utility>

#include "models/store/weights/host_layers.h"

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
    for (at::Tensor* tensor : tensors_of(layers_[here_])) tensor->reset();
    for (const Slot& slot : layers_[layer]) reader_->load(*slot.tensor, slot.parameter);
    here_ = layer;
    if (layer + 1 == layers_.size()) reader_->check_complete();
  }

 private:
  std::shared_ptr<WeightReader> reader_;
  std::vector<Slots> layers_;
  size_t here_ = 0;  // the layer that was visited last
};

}  // namespace

std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          Residence residence) {
  if (residence == Residence::file) return std::make_unique<FileLayers>(std::move(reader), std::move(layers));
  std::unique_ptr<HostLayers> host;
  if (residence == Residence::host) host = std::make_unique<HostLayers>(reader->device());
  for (Slots& layer : layers) {
    for (const Slot& slot : layer) reader->load(*slot.tensor, slot.parameter);
    if (host) host->take(layer);
  }
  if (host) return host;
  return std::make_unique<ResidentLayers>();
}

}  // namespace sparsereel::models
