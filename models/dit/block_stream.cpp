// Copies ahead of the computation; see block_stream.h.
#include "models/dit/block_stream.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace sparsereel::models {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, as the allocator's own tensors have at least
// libtorch rounds page-locked memory up to a power of two: blocks in one piece could take twice their size.
constexpr int64_t kChunkBytes = int64_t{16} << 20;

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

BlockStream::BlockStream(at::Device device)
    : device_(device),
      side_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
      reached_(device.type()),
      buffers_{
          {{.memory = {}, .copied = c10::Event(device.type())}, {.memory = {}, .copied = c10::Event(device.type())}}} {}

BlockStream::~BlockStream() {
  // The buffers' memory must not be given out while a copy still writes to it.
  try {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  } catch (...) {  // NOLINT(bugprone-empty-catch): a device that is lost copies nothing; its error has been thrown
  }
}

void BlockStream::plan(const std::vector<at::Tensor*>& tensors) {
  for (const at::Tensor* tensor : tensors) {
    Place place;
    place.defined = tensor->defined();
    if (place.defined) {
      place.offset = bytes_;
      place.sizes = tensor->sizes().vec();
      place.dtype = tensor->scalar_type();
      bytes_ += (static_cast<int64_t>(tensor->nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
    }
    places_.push_back(std::move(place));
  }
}

at::Tensor BlockStream::view(const at::Tensor& memory, const Place& place) const {
  int64_t count = 1;
  for (const int64_t size : place.sizes) count *= size;
  const auto bytes = count * static_cast<int64_t>(c10::elementSize(place.dtype));
  return memory.narrow(0, place.offset, bytes).view(place.dtype).view(place.sizes);
}

void BlockStream::reserve(Buffer& buffer) const {
  if (!buffer.memory.defined())
    buffer.memory = at::empty({bytes_}, at::TensorOptions().dtype(at::kByte).device(device_));
}

void BlockStream::take(const std::vector<at::Tensor*>& tensors) {
  if (places_.empty()) plan(tensors);
  Buffer& staging = buffers_.front();
  reserve(staging);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!places_[i].defined) continue;
    view(staging.memory, places_[i]).copy_(*tensors[i]);
    tensors[i]->reset();
  }
  std::vector<at::Tensor>& chunks = host_.emplace_back();
  for (int64_t start = 0; start < bytes_; start += kChunkBytes) {
    const int64_t size = std::min(kChunkBytes, bytes_ - start);
    chunks.push_back(at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(true)));
    chunks.back().copy_(staging.memory.narrow(0, start, size));
  }
}

void BlockStream::copy(size_t index, Buffer& buffer) {
  reserve(buffer);
  reached_.record(current_stream(device_));
  reached_.block(side_);
  {
    const c10::StreamGuard guard(side_);
    int64_t start = 0;
    for (const at::Tensor& chunk : host_[index]) {
      buffer.memory.narrow(0, start, chunk.numel()).copy_(chunk, /*non_blocking=*/true);
      start += chunk.numel();
    }
  }
  buffer.copied.record(side_);
  buffer.block = index;
  buffer.filled = true;
}

void BlockStream::visit(size_t index, const std::vector<at::Tensor*>& tensors) {
  size_t here = 1 - last_;
  if (holds(buffers_[last_], index)) here = last_;
  if (!holds(buffers_[here], index)) copy(index, buffers_[here]);
  buffers_[here].copied.block(current_stream(device_));
  last_ = here;
  const size_t next = (index + 1) % host_.size();
  // By now the block before this one is enqueued, so that its buffer is free once the current stream gets here.
  if (!holds(buffers_[1 - here], next)) copy(next, buffers_[1 - here]);
  for (size_t i = 0; i < tensors.size(); ++i)
    *tensors[i] = places_[i].defined ? view(buffers_[here].memory, places_[i]) : at::Tensor();
}

}  // namespace sparsereel::models
