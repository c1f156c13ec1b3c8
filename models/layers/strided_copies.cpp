// Copies with our kernel or the copy engines if these accept the tensors, and otherwise with torch, one tensor after
// the other.
#include "models/layers/strided_copies.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#ifdef SPARSEREEL_CUDA
#include "models/layers/copy_call.h"
#endif

namespace sparsereel::models {
namespace {

/// Makes later work of `second` wait for the work that `first` has enqueued so far.
void put_behind(const c10::Stream& first, const c10::Stream& second) {
  c10::Event event(first.device_type());
  event.record(first);
  event.block(second);
}

}  // namespace

void copy_all(std::span<const StridedCopy> copies) {
#ifdef SPARSEREEL_CUDA
  if (copy_on_cuda(copies)) return;
#endif
  for (const auto& [to, from] : copies) to.copy_(from);
}

CopiesBeside::~CopiesBeside() {
  try {
    join();
  } catch (...) {  // NOLINT(bugprone-empty-catch): fails only on a lost device, which copies nothing more
  }
}

void CopiesBeside::begin(std::span<const StridedCopy> copies) {
  if (copies.empty()) return;
#ifdef SPARSEREEL_CUDA
  if (device_.is_cuda()) {
    const c10::impl::VirtualGuardImpl gpu(device_.type());
    if (!stream_) stream_ = gpu.getStreamFromGlobalPool(device_);
    put_behind(gpu.getStream(device_), *stream_);
    if (copy_by_engines(copies, static_cast<attention::cuda::Stream>(stream_->native_handle()))) return;
  }
#endif
  copy_all(copies);
}

void CopiesBeside::join() {
  if (!stream_) return;
  put_behind(*stream_, c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  stream_.reset();
}

}  // namespace sparsereel::models
