// Collects a module's tensors, and fetches the weights of layers.
#include "models/store/weights/layer_weights.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <utility>

namespace sparsereel::models {
namespace {

constexpr int64_t kAlignment = 256;  // bytes; the allocator's own tensors have at least this alignment
// libtorch rounds page-locked memory up to a power of two, so a layer in one piece could take twice its size.
constexpr int64_t kPackingChunk = int64_t{16} << 20;

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

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

/// Runs a model that is larger than the GPU: its layers stay in host memory. There are two buffers on the GPU, each as
/// large as the largest layer. While one layer computes, the next one is copied on a separate stream.
class HostLayers final : public LayerWeights {
 public:
  explicit HostLayers(at::Device device);
  ~HostLayers() override;
  HostLayers(const HostLayers&) = delete;
  HostLayers& operator=(const HostLayers&) = delete;

  /// Moves the next layer's tensors from the GPU into page-locked memory and leaves them undefined.
  void take(const Slots& slots);
  void visit(size_t layer) override;

 private:
  struct Layer {
    std::vector<at::Tensor*> tensors;
    Packing packing;
    std::vector<at::Tensor> host;  // page-locked chunks, in order
  };
  struct Buffer {
    at::Tensor memory;
    c10::Event copied;
    size_t layer = 0;
    bool filled = false;
  };

  static bool holds(const Buffer& buffer, size_t layer) { return buffer.filled && buffer.layer == layer; }
  void reserve(Buffer& buffer) const;
  void copy(size_t layer, Buffer& buffer);

  at::Device device_;
  c10::Stream side_;
  c10::Event reached_;  // the current stream has finished all earlier uses of the buffers
  std::vector<Layer> layers_;
  int64_t bytes_ = 0;  // bytes of the largest layer
  std::array<Buffer, 2> buffers_;
  size_t last_ = 1;  // the buffer that was visited last
};

HostLayers::HostLayers(at::Device device)
    : device_(device),
      side_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
      reached_(device.type()),
      buffers_{
          {{.memory = {}, .copied = c10::Event(device.type())}, {.memory = {}, .copied = c10::Event(device.type())}}} {}

HostLayers::~HostLayers() {
  // The buffers' memory must not be reused while a copy still writes to it.
  try {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lost device copies nothing, and its error was thrown before
  }
}

// Buffers grow only while layers are taken, when none is in use.
void HostLayers::reserve(Buffer& buffer) const {
  if (buffer.memory.defined() && buffer.memory.numel() >= bytes_) return;
  buffer.memory.reset();
  buffer.memory = at::empty({bytes_}, at::TensorOptions().dtype(at::kByte).device(device_));
}

void HostLayers::take(const Slots& slots) {
  std::vector<at::Tensor*> tensors = tensors_of(slots);
  Packing packing(tensors);
  bytes_ = std::max(bytes_, packing.bytes());
  Buffer& staging = buffers_.front();
  reserve(staging);
  for (size_t i = 0; i < tensors.size(); ++i) {
    packing.view(staging.memory, i).copy_(*tensors[i]);
    tensors[i]->reset();
  }
  std::vector<at::Tensor> host;
  for (int64_t start = 0; start < packing.bytes(); start += kPackingChunk) {
    const int64_t size = std::min(kPackingChunk, packing.bytes() - start);
    host.push_back(at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(true)));
    host.back().copy_(staging.memory.narrow(0, start, size));
  }
  layers_.push_back({.tensors = std::move(tensors), .packing = std::move(packing), .host = std::move(host)});
}

void HostLayers::copy(size_t layer, Buffer& buffer) {
  reserve(buffer);
  reached_.record(current_stream(device_));
  reached_.block(side_);
  {
    const c10::StreamGuard guard(side_);
    int64_t start = 0;
    for (const at::Tensor& chunk : layers_[layer].host) {
      buffer.memory.narrow(0, start, chunk.numel()).copy_(chunk, /*non_blocking=*/true);
      start += chunk.numel();
    }
  }
  buffer.copied.record(side_);
  buffer.layer = layer;
  buffer.filled = true;
}

void HostLayers::visit(size_t layer) {
  size_t here = 1 - last_;
  if (holds(buffers_[last_], layer)) here = last_;
  if (!holds(buffers_[here], layer)) copy(layer, buffers_[here]);
  buffers_[here].copied.block(current_stream(device_));
  last_ = here;
  const size_t next = (layer + 1) % layers_.size();
  // The layer before this one is enqueued by now, so its buffer is free once the current stream gets here.
  if (!holds(buffers_[1 - here], next)) copy(next, buffers_[1 - here]);
  for (size_t i = 0; i < layers_[layer].tensors.size(); ++i)
    *layers_[layer].tensors[i] = layers_[layer].packing.view(buffers_[here].memory, i);
}

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
