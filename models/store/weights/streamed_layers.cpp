// Copies layers to a GPU through two buffers while other layers compute.
#include "models/store/weights/streamed_layers.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <array>
#include <future>
#include <utility>

#include "models/store/weights/upload.h"

namespace sparsereel::models {
namespace {

// A layer in host memory is split into chunks of this many bytes. libtorch rounds page-locked memory up to a power of
// two, so a layer in one piece could take twice its size.
constexpr int64_t kPackingChunk = int64_t{16} << 20;

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Chooses `count` of `all` indices, spread evenly; the last index is among them. Returns true if `index` is chosen.
bool is_chosen(size_t index, size_t all, size_t count) {
  return (index + 1) * count / all > index * count / all;
}

/// Returns host memory, page-locked if `pinned` is true. Systems limit page-locked memory. Beyond the limit, returns
/// pageable memory and sets `pinned` to false.
at::Tensor host_memory(int64_t bytes, bool& pinned) {
  const auto options = at::TensorOptions().dtype(at::kByte);
  if (!pinned) return at::empty({bytes}, options);
  try {
    return at::empty({bytes}, options.pinned_memory(true));
  } catch (const c10::Error&) {
    pinned = false;
  }
  return at::empty({bytes}, options);
}

class ResidentLayers final : public LayerWeights {
 public:
  void visit(size_t /*layer*/) override {}
};

/// Runs a model that is larger than the GPU: some of its layers stay in host memory. There are two buffers on the GPU,
/// each as large as the largest of these layers. While one layer computes, the next one is copied on a separate stream.
class StreamedLayers final : public LayerWeights {
 public:
  explicit StreamedLayers(std::shared_ptr<WeightReader> reader);
  ~StreamedLayers() override;
  StreamedLayers(const StreamedLayers&) = delete;
  StreamedLayers& operator=(const StreamedLayers&) = delete;

  /// Takes over the next layer, whose tensors are on the GPU. If the layer does not stay on the GPU, its tensors become
  /// undefined.
  void take(Slots slots, LayerPlace place);
  void visit(size_t layer) override;

 private:
  /// A layer in host memory.
  struct Layer {
    std::vector<at::Tensor*> tensors;
    Packing packing;
    std::vector<at::Tensor> host;  // the layer's bytes in chunks, in order
    bool pinned;
  };
  struct Buffer {
    at::Tensor memory;
    c10::Event copied;
    // Ready when the thread that copies from pageable memory has finished; invalid if there is no such thread.
    std::future<void> copying;
    size_t layer = 0;  // index in copied_
    bool filled = false;
  };

  static bool holds(const Buffer& buffer, size_t layer) { return buffer.filled && buffer.layer == layer; }
  static void wait(Buffer& buffer);
  void reserve(Buffer& buffer) const;
  void copy(size_t layer, Buffer& buffer);
  void enqueue(const Layer& layer, Buffer& buffer);
  void read_file(size_t layer);
  void use(size_t layer, Buffer& buffer);

  std::shared_ptr<WeightReader> reader_;
  at::Device device_;
  c10::Stream side_;
  // Recorded on the current stream before a copy. The copy waits for this event, because earlier work may still read
  // the buffer.
  c10::Event reached_;
  std::vector<LayerPlace> places_;
  std::vector<Slots> slots_;   // for each layer, its slots if it is read from the file, or else empty
  std::vector<size_t> next_;   // for each layer, the index in copied_ of this layer or of the first one after it
  std::vector<Layer> copied_;  // the layers that are in host memory, and are copied to the buffers
  int64_t bytes_ = 0;          // bytes of the largest layer in copied_
  std::array<Buffer, 2> buffers_;
  Uploader uploader_;
  size_t read_ = 0;  // the last layer that was read from the file
};

StreamedLayers::StreamedLayers(std::shared_ptr<WeightReader> reader)
    : reader_(std::move(reader)),
      device_(reader_->device()),
      side_(c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_)),
      reached_(device_.type()),
      buffers_{{{.memory = {}, .copied = c10::Event(device_.type()), .copying = {}},
                {.memory = {}, .copied = c10::Event(device_.type()), .copying = {}}}},
      uploader_(device_) {}

StreamedLayers::~StreamedLayers() {
  // The buffers' memory must not be reused while a copy still writes to it.
  try {
    for (Buffer& buffer : buffers_)
      if (buffer.copying.valid()) buffer.copying.wait();
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lost device copies nothing, and its error was thrown before
  }
}

void StreamedLayers::wait(Buffer& buffer) {
  if (!buffer.copying.valid()) return;
  buffer.filled = false;  // stays false if get() throws the copy's error
  buffer.copying.get();
  buffer.filled = true;
}

// Replaces a buffer that is too small. This happens only in take(), when no buffer is in use.
void StreamedLayers::reserve(Buffer& buffer) const {
  if (buffer.memory.defined() && buffer.memory.numel() >= bytes_) return;
  buffer.memory.reset();
  buffer.memory = at::empty({bytes_}, at::TensorOptions().dtype(at::kByte).device(device_));
}

void StreamedLayers::take(Slots slots, LayerPlace place) {
  places_.push_back(place);
  next_.push_back(copied_.size());
  slots_.emplace_back();
  if (place == LayerPlace::device) return;
  std::vector<at::Tensor*> tensors = tensors_of(slots);
  if (place == LayerPlace::file) {
    for (at::Tensor* tensor : tensors) tensor->reset();
    read_ = places_.size() - 1;
    slots_.back() = std::move(slots);
    return;
  }
  Packing packing(tensors);
  bytes_ = std::max(bytes_, packing.bytes());
  Buffer& staging = buffers_.front();
  reserve(staging);
  for (size_t i = 0; i < tensors.size(); ++i) {
    packing.view(staging.memory, i).copy_(*tensors[i]);
    tensors[i]->reset();
  }
  bool pinned = place == LayerPlace::pinned;
  std::vector<at::Tensor> host;
  for (int64_t start = 0; start < packing.bytes(); start += kPackingChunk) {
    const int64_t size = std::min(kPackingChunk, packing.bytes() - start);
    host.push_back(host_memory(size, pinned));
    host.back().copy_(staging.memory.narrow(0, start, size));
  }
  copied_.push_back(
      {.tensors = std::move(tensors), .packing = std::move(packing), .host = std::move(host), .pinned = pinned});
}

/// Enqueues the copy of a layer on the side stream.
void StreamedLayers::enqueue(const Layer& layer, Buffer& buffer) {
  const c10::StreamGuard guard(side_);
  int64_t start = 0;
  for (const at::Tensor& chunk : layer.host) {
    const at::Tensor to = buffer.memory.narrow(0, start, chunk.numel());
    if (layer.pinned)
      to.copy_(chunk, /*non_blocking=*/true);
    else
      uploader_.upload({static_cast<const std::byte*>(chunk.const_data_ptr()), static_cast<size_t>(chunk.numel())}, to);
    start += chunk.numel();
  }
  buffer.copied.record(side_);
}

void StreamedLayers::copy(size_t layer, Buffer& buffer) {
  // A thread may still be copying, and it uses uploader_, which only one thread may use at a time.
  for (Buffer& each : buffers_) wait(each);
  reserve(buffer);
  reached_.record(current_stream(device_));
  reached_.block(side_);
  buffer.filled = false;
  buffer.layer = layer;
  if (copied_[layer].pinned) {
    enqueue(copied_[layer], buffer);
    buffer.filled = true;
    return;
  }
  // Copying from pageable memory occupies a CPU thread until the copy is done, so another thread copies. This thread
  // can enqueue the work of the next layer meanwhile.
  buffer.copying = std::async(std::launch::async, [this, layer, &buffer] {
    const c10::InferenceMode inference;  // a new thread does not inherit it
    const c10::DeviceGuard device(device_);
    // Without this, the new thread would start a team of OpenMP threads of its own.
    const c10::ParallelGuard alone(true);
    enqueue(copied_[layer], buffer);
  });
  buffer.filled = true;
}

void StreamedLayers::read_file(size_t layer) {
  if (read_ != layer)
    for (at::Tensor* tensor : tensors_of(slots_[read_])) tensor->reset();
  read_ = layer;
  for (const Slot& slot : slots_[layer]) reader_->load(*slot.tensor, slot.parameter);
}

void StreamedLayers::use(size_t layer, Buffer& buffer) {
  wait(buffer);
  buffer.copied.block(current_stream(device_));
  Layer& here = copied_[layer];
  for (size_t i = 0; i < here.tensors.size(); ++i) *here.tensors[i] = here.packing.view(buffer.memory, i);
}

void StreamedLayers::visit(size_t layer) {
  if (!copied_.empty()) {
    const LayerPlace place = places_[layer];
    const size_t first = next_[layer] % copied_.size(), second = (first + 1) % copied_.size();
    size_t here = holds(buffers_[1], first) || holds(buffers_[0], second) ? 1 : 0;
    if (holds(buffers_[0], first)) here = 0;
    if (!holds(buffers_[here], first)) copy(first, buffers_[here]);
    if (place == LayerPlace::pinned || place == LayerPlace::pageable) use(first, buffers_[here]);
    // The work of all earlier layers is already enqueued. So the other buffer is free when the current stream gets to
    // this point. The copy of the second layer waits for this point.
    if (second != first && !holds(buffers_[1 - here], second)) copy(second, buffers_[1 - here]);
  }
  if (places_[layer] == LayerPlace::file) read_file(layer);
}

}  // namespace

std::vector<LayerPlace> layer_places(size_t layers, const Streaming& streaming) {
  const size_t streamed = std::min(static_cast<size_t>(std::max<int64_t>(streaming.layers, 0)), layers);
  const size_t from_file = std::min(static_cast<size_t>(std::max<int64_t>(streaming.from_file, 0)), streamed);
  const size_t held = streamed - from_file;
  const size_t pageable = std::min(static_cast<size_t>(std::max<int64_t>(streaming.pageable, 0)), held);
  std::vector<LayerPlace> places(layers, LayerPlace::device);
  size_t index = 0, in_memory = 0;
  for (size_t layer = 0; layer < layers; ++layer) {
    if (!is_chosen(layer, layers, streamed)) continue;
    if (is_chosen(index++, streamed, from_file))
      places[layer] = LayerPlace::file;
    else
      places[layer] = is_chosen(in_memory++, held, pageable) ? LayerPlace::pageable : LayerPlace::pinned;
  }
  return places;
}

namespace {

std::unique_ptr<LayerWeights> load_streamed(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                            const Streaming& streaming) {
  const std::vector<LayerPlace> places = layer_places(layers.size(), streaming);
  auto streamed = std::make_unique<StreamedLayers>(reader);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const Slot& slot : layers[layer]) reader->load(*slot.tensor, slot.parameter);
    streamed->take(std::move(layers[layer]), places[layer]);
  }
  return streamed;
}

}  // namespace

std::unique_ptr<LayerWeights> load_layers(std::shared_ptr<WeightReader> reader, std::vector<Slots> layers,
                                          const Streaming& streaming) {
  if (streaming.layers > 0 && !reader->device().is_cpu() && !reader->device().is_meta())
    return load_streamed(std::move(reader), std::move(layers), streaming);
  for (Slots& layer : layers)
    for (const Slot& slot : layer) reader->load(*slot.tensor, slot.parameter);
  return std::make_unique<ResidentLayers>();
}

}  // namespace sparsereel::models
