// Turns copies of strided tensors into copies of 16-byte words for the kernels of layers/cuda.
#include "models/layers/copy_call.h"

#include <c10/core/DeviceGuard.h>

#include <limits>
#include <optional>
#include <vector>

#include "attention/cuda_binding.h"
#include "models/layers/cuda/launch.h"

namespace sparsereel::models {
namespace {

using attention::check_launch;
using attention::current_stream;
using attention::on_16_bytes;

constexpr int64_t kWord = 16;  // bytes

/// Collects the dimensions of a copy, innermost first. Merges neighboring dimensions that are contiguous in both
/// tensors.
class Dimensions {
 public:
  explicit Dimensions(cuda::StridedCopy& copy) : copy_(copy) {}
  /// Adds a dimension with strides in words. Returns false if the kernel cannot take another dimension.
  bool add(int64_t size, int64_t from_stride, int64_t to_stride) {
    const int last = count_ - 1;
    if (count_ > 0 && from_stride == copy_.from_strides[last] * copy_.sizes[last] &&
        to_stride == copy_.to_strides[last] * copy_.sizes[last]) {
      copy_.sizes[last] *= static_cast<int>(size);
      return true;
    }
    if (count_ == cuda::kMaxCopyDims) return false;
    copy_.sizes[count_] = static_cast<int>(size);
    copy_.from_strides[count_] = from_stride;
    copy_.to_strides[count_] = to_stride;
    ++count_;
    return true;
  }

 private:
  cuda::StridedCopy& copy_;
  int count_ = 0;
};

std::optional<cuda::StridedCopy> in_words(const at::Tensor& to, const at::Tensor& from) {
  const int64_t each = kWord / from.element_size();  // elements
  cuda::StridedCopy copy = {.from = from.const_data_ptr(), .to = to.mutable_data_ptr(), .words = from.numel() / each};
  const int64_t last = from.dim() - 1;
  if (!from.is_cuda() || to.device() != from.device() || to.scalar_type() != from.scalar_type() ||
      to.sizes() != from.sizes() || !on_16_bytes(from) || !on_16_bytes(to) ||
      copy.words > std::numeric_limits<int>::max() || last < 0 || from.stride(last) != 1 || to.stride(last) != 1 ||
      from.size(last) % each != 0)
    return std::nullopt;
  Dimensions dimensions(copy);
  dimensions.add(from.size(last) / each, 1, 1);
  for (int64_t dim = last - 1; dim >= 0; --dim) {
    if (from.size(dim) == 1) continue;
    if (from.stride(dim) % each != 0 || to.stride(dim) % each != 0 ||
        !dimensions.add(from.size(dim), from.stride(dim) / each, to.stride(dim) / each))
      return std::nullopt;
  }
  return copy;
}

/// Returns the copies in 16-byte words; nullopt if one of them cannot be split into such words.
std::optional<std::vector<cuda::StridedCopy>> all_in_words(std::span<const StridedCopy> copies) {
  std::vector<cuda::StridedCopy> all;
  for (const auto& [to, from] : copies) {
    if (from.numel() == 0) continue;
    const auto copy = in_words(to, from);
    if (!copy) return std::nullopt;
    all.push_back(*copy);
  }
  return all;
}

}  // namespace

bool copy_on_cuda(std::span<const StridedCopy> copies) {
  const auto all = all_in_words(copies);
  if (!all || all->empty()) return all.has_value();
  const at::Device device = copies.front().from.device();
  const c10::DeviceGuard guard(device);
  for (size_t first = 0; first < all->size(); first += cuda::kMaxCopies) {
    cuda::StridedCopies call;
    while (call.count < cuda::kMaxCopies && first + static_cast<size_t>(call.count) < all->size()) {
      call.copies[call.count] = (*all)[first + static_cast<size_t>(call.count)];
      ++call.count;
    }
    check_launch(cuda::copy_strided(call, current_stream(device)), "copying");
  }
  return true;
}

bool copy_by_engines(std::span<const StridedCopy> copies, attention::cuda::Stream stream) {
  const auto all = all_in_words(copies);
  if (!all || all->empty()) return all.has_value();
  const c10::DeviceGuard guard(copies.front().from.device());
  for (const cuda::StridedCopy& copy : *all) check_launch(cuda::copy_by_engine(copy, stream), "copying");
  return true;
}

}  // namespace sparsereel::models
