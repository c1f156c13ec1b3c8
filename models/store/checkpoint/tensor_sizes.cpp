// Reads sizes from the shapes of tensors.
#include "models/store/checkpoint/tensor_sizes.h"

#include <algorithm>
#include <charconv>

namespace sparsereel::models {

void TensorSizes::add(const char* name, const std::string& tensor, size_t axis, size_t axes) {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end() && found->second.second->shape.size() == axes)
    sizes_[name] = found->second.second->shape[axis];
}

void TensorSizes::add_or_none(const char* name, const std::string& tensor, size_t axis, size_t axes) {
  if (sizes_.empty()) return;
  sizes_[name] = 0;
  add(name, tensor, axis, axes);
}

void TensorSizes::add_blocks(const char* name, std::string_view prefix) {
  if (!sizes_.empty()) sizes_[name] = count_blocks(tensors_, prefix);
}

int64_t count_blocks(const TensorTable& tensors, std::string_view prefix) {
  int64_t count = 0;
  for (const auto& [tensor, place] : tensors) {
    int32_t number = -1;  // stays -1 if a damaged file has a number that does not fit
    if (tensor.starts_with(prefix))
      std::from_chars(tensor.data() + prefix.size(), tensor.data() + tensor.size(), number);
    count = std::max(count, int64_t{number} + 1);
  }
  return count;
}

}  // namespace sparsereel::models
